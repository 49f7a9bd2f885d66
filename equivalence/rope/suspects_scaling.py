"""Suspects: which base, which scaled frequencies, and which factor of cosine and sine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from equivalence.dtypes import Array
from equivalence.rope.case import THETA
from equivalence.rope.imagining import Imagined, Suspect, Suspects, with_mistake
from equivalence.rope.inputs import RotaryInputs
from equivalence.rope.reference import factor_of, frequencies, magnitude
from equivalence.rope.scaling import RopeScaling
from equivalence.rope.suspects_ramps import bands, ramps

SCALING: Final = "rotary-scaling"
USUAL_THETAS: Final = (500_000.0, 1_000_000.0)  # the plain one comes first, by itself


def scales(inputs: RotaryInputs) -> Suspects:
    """Mistakes of frequency and factor, the simplest first."""
    if inputs.theta != THETA:
        yield _base("theta is ignored", THETA)
    for theta in USUAL_THETAS:
        if theta != inputs.theta:
            yield _base(f"theta={inputs.theta:g} is not taken", theta)
    if inputs.attention_factor is not None:
        yield _factor(
            "attention_factor is ignored",
            lambda i: factor_of(i.scaling, None),
        )
    if inputs.scaling is not None and inputs.scaling.rope_type != "default":
        yield from _scalings(inputs.scaling)
    factor = factor_of(inputs.scaling, inputs.attention_factor)
    if factor != 1.0:
        yield _factor("the attention factor is applied twice", lambda i: _own(i) ** 2)
        yield _factor("the attention factor is not applied", lambda i: 1.0)
        yield _factor("the attention factor divides, expected to multiply", lambda i: 1 / _own(i))


def _base(sentence: str, theta: float) -> Suspect:
    return Suspect(
        kind="ignored-option",
        sentence=f"{sentence}: angles are those of theta={theta:g}",
        imagine=lambda i: with_mistake(i, theta=theta),
    )


def _own(inputs: RotaryInputs) -> float:
    return factor_of(inputs.scaling, inputs.attention_factor)


def _factor(sentence: str, factor: Callable[[RotaryInputs], float]) -> Suspect:
    return Suspect(
        kind=SCALING, sentence=sentence, imagine=lambda i: with_mistake(i, factor=factor(i))
    )


def _scalings(scaling: RopeScaling) -> Suspects:
    name = scaling.rope_type
    yield Suspect(
        kind=SCALING,
        sentence=f"{name} scaling is ignored: frequencies and factor are the plain ones",
        imagine=lambda i: with_mistake(i, scaling=None),
    )
    yield _frequency(f"{name} scaling leaves the frequencies as they are", lambda s: None)
    if scaling.attention_factor is not None:
        yield _factor(
            f"the given attention_factor={scaling.attention_factor} is dropped: {name} infers it",
            lambda i: _inferred(i, attention_factor=None),
        )
    if name == "yarn":
        yield from _yarn(scaling)
    if name != "linear":
        yield _frequency(
            f"all frequencies are divided by the factor, as linear scaling does, not {name}",
            lambda s: RopeScaling(rope_type="linear", factor=s.factor),
        )
    if scaling.factor != 1:
        yield _omega(
            f"frequencies are multiplied by factor={scaling.factor:g}, expected divided",
            lambda i, s: _plain(i) * s.factor,
        )
        yield _frequency(
            "the factor is applied twice: frequencies are those of its square",
            lambda s: s.but(factor=s.factor**2),
        )
    if name not in ("linear", "default"):
        yield _frequency(
            "original_max_position_embeddings is taken times the factor, as the length that "
            "scaling reaches",
            lambda s: s.but(
                original_max_position_embeddings=round(
                    s.original_max_position_embeddings * s.factor
                )
            ),
        )
    match name:
        case "dynamic":
            yield from _stretches()
        case "longrope":
            yield from _long_and_short()
        case "yarn":
            yield from (_omega(sentence, omega) for sentence, omega in ramps())
        case "llama3":
            yield from (_omega(sentence, omega) for sentence, omega in bands(scaling))


def _yarn(scaling: RopeScaling) -> Suspects:
    """Its attention factor, and options that are dropped."""
    mscale, everywhere = scaling.mscale, scaling.mscale_all_dim
    if scaling.attention_factor is None and not (mscale and everywhere):
        yield _factor(
            "the attention factor collapses to 1: the ratio of two mscales that are not given",
            lambda i: 1.0,
        )
    if mscale or everywhere:
        yield _factor(
            "mscale and mscale_all_dim are dropped",
            lambda i: _inferred(i, mscale=None, mscale_all_dim=None),
        )
    if mscale:
        yield _factor(
            "mscale is applied by itself, expected over mscale_all_dim",
            lambda i: _magnitude(i, mscale),
        )
    if everywhere:
        yield _factor(
            "mscale_all_dim is applied by itself, expected to divide that of mscale",
            lambda i: _magnitude(i, everywhere),
        )
    for key in ("beta_fast", "beta_slow"):
        if getattr(scaling, key) is not None:
            yield _frequency(f"{key} is dropped", lambda s, key=key: s.but(**{key: None}))  # type: ignore[misc]
    yield _frequency(
        "truncate is dropped" if not scaling.truncate else "the ends of the ramp are not rounded",
        lambda s: s.but(truncate=not s.truncate),
    )


def _inferred(inputs: RotaryInputs, **changes: float | None) -> float:
    assert inputs.scaling is not None
    return factor_of(inputs.scaling.but(**changes), inputs.attention_factor)


def _magnitude(inputs: RotaryInputs, mscale: float) -> float:
    assert inputs.scaling is not None
    return magnitude(inputs.scaling.factor, mscale)


def _frequency(sentence: str, other: Callable[[RopeScaling], RopeScaling | None]) -> Suspect:
    """The frequencies of another scaling, with the right factor."""
    return _omega(sentence, lambda i, s: frequencies(i.turning, i.theta, other(s), i.length))


def _omega(sentence: str, omega: Callable[[RotaryInputs, RopeScaling], Array | None]) -> Suspect:
    """Other frequencies, with the right factor; None where they make no sense."""

    def imagine(inputs: RotaryInputs) -> Imagined | None:
        if inputs.scaling is None:
            return None
        found = omega(inputs, inputs.scaling)
        return None if found is None else with_mistake(inputs, omega=found)

    return Suspect(kind=SCALING, sentence=sentence, imagine=imagine)


def _plain(inputs: RotaryInputs) -> Array:
    return frequencies(inputs.turning, inputs.theta, None, inputs.length)


def _stretches() -> Suspects:
    """How dynamic scaling stretches the base."""

    def stretched(
        sentence: str,
        by: Callable[[float, float], float],
        power: Callable[[int, int], float] = lambda width, head_dim: width / (width - 2.0),
    ) -> Suspect:
        """``by`` of the factor and of the length in units of the original one."""

        def omega(i: RotaryInputs, s: RopeScaling) -> Array | None:
            lengths = max(1.0, i.length / s.original_max_position_embeddings)
            base = i.theta * by(s.factor, lengths) ** power(i.turning, i.x.shape[-1])
            return frequencies(i.turning, base, None, i.length)

        return _omega(sentence, omega)

    yield stretched(
        "the base is stretched once and for all, whatever the length (static NTK)", lambda f, n: f
    )
    yield _seen_length(
        "dynamic scaling sees the number of tokens, expected the largest position + 1"
    )
    yield stretched(
        "the base is stretched by factor * length / original, expected less (factor - 1)",
        lambda f, n: f * n if n > 1 else 1.0,
    )
    yield stretched(
        "the base is stretched by factor * length / original, expected less (factor - 1), and "
        "within the original length too",
        lambda f, n: f * n,
    )
    yield stretched(
        "the base is stretched by length / original: factor is left out", lambda f, n: n
    )
    yield stretched(
        "the base is multiplied by the stretch, expected by its power r / (r - 2)",
        lambda f, n: f * n - (f - 1),
        lambda width, head_dim: 1.0,
    )
    yield stretched(
        "the power of the stretch is that of head_dim, expected of rotary_dim",
        lambda f, n: f * n - (f - 1),
        lambda width, head_dim: head_dim / (head_dim - 2.0),
    )


def _long_and_short() -> Suspects:
    """Which of the two lists longrope reads, and what it does with it."""

    def read(sentence: str, long: Callable[[int, int], bool]) -> Suspect:
        return _omega(
            sentence,
            lambda i, s: _by_list(i, s, long(i.length, s.original_max_position_embeddings)),
        )

    yield read("short_factor is used whatever the length", lambda n, original: False)
    yield read("long_factor is used whatever the length", lambda n, original: True)
    yield _seen_length("longrope sees the number of tokens, expected the largest position + 1")
    yield read(
        "long_factor is used at the original length already, expected beyond it",
        lambda n, original: n >= original,
    )
    yield read("short_factor and long_factor are exchanged", lambda n, original: n <= original)
    yield _omega(
        "frequencies are multiplied by the list of factors, expected divided",
        lambda i, s: _plain(i) ** 2 / frequencies(i.turning, i.theta, s, i.length),
    )


def _by_list(inputs: RotaryInputs, scaling: RopeScaling, long: bool) -> Array:
    name = "long_factor" if long else "short_factor"
    return np.asarray(_plain(inputs) / np.asarray(scaling.factors(name, inputs.turning // 2)))


def _seen_length(sentence: str) -> Suspect:
    return _omega(sentence, lambda i, s: frequencies(i.turning, i.theta, s, i.x.shape[2]))
