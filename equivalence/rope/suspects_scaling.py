"""Suspects: which base, which scaled frequencies, and which factor of cosine and sine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from equivalence.rope.case import THETA
from equivalence.rope.imagining import Imagined, Suspect, Suspects, with_mistake
from equivalence.rope.inputs import RotaryInputs
from equivalence.rope.reference import factor_of, frequencies, magnitude
from equivalence.rope.scaling import RopeScaling

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
        yield Suspect(
            kind=SCALING,
            sentence=f"frequencies are multiplied by factor={scaling.factor:g}, expected divided",
            imagine=_multiplied,
        )
    if name == "dynamic":
        yield Suspect(
            kind=SCALING,
            sentence="the base is stretched once and for all, whatever the length (static NTK)",
            imagine=_static_ntk,
        )
        yield _length(
            "dynamic scaling sees the number of tokens, expected the largest position + 1"
        )
    if name == "longrope":
        yield _long("short_factor is used whatever the length", 0)
        yield _long("long_factor is used whatever the length", 1 << 30)
        yield _length("longrope sees the number of tokens, expected the largest position + 1")
    if name == "llama3":
        yield Suspect(
            kind=SCALING,
            sentence="the frequencies between the bands are not blended",
            imagine=_unblended,
        )


def _yarn(scaling: RopeScaling) -> Suspects:
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
        yield _factor("mscale is applied by itself, expected over mscale_all_dim", _mscale_alone)
    for key in ("beta_fast", "beta_slow"):
        if getattr(scaling, key) is not None:
            yield _frequency(f"{key} is dropped", lambda s, key=key: s.but(**{key: None}))  # type: ignore[misc]
    if not scaling.truncate:
        yield _frequency("truncate is dropped", lambda s: s.but(truncate=True))


def _inferred(inputs: RotaryInputs, **changes: float | None) -> float:
    assert inputs.scaling is not None
    return factor_of(inputs.scaling.but(**changes), inputs.attention_factor)


def _mscale_alone(inputs: RotaryInputs) -> float:
    assert inputs.scaling is not None
    return magnitude(inputs.scaling.factor, inputs.scaling.mscale or 1.0)


def _frequency(sentence: str, other: Callable[[RopeScaling], RopeScaling | None]) -> Suspect:
    """The frequencies of another scaling, with the right factor."""

    def imagine(inputs: RotaryInputs) -> Imagined:
        assert inputs.scaling is not None
        omega = frequencies(inputs.turning, inputs.theta, other(inputs.scaling), inputs.length)
        return with_mistake(inputs, omega=omega)

    return Suspect(kind=SCALING, sentence=sentence, imagine=imagine)


def _multiplied(inputs: RotaryInputs) -> Imagined:
    assert inputs.scaling is not None
    plain = frequencies(inputs.turning, inputs.theta, None, inputs.length)
    return with_mistake(inputs, omega=plain * inputs.scaling.factor)


def _static_ntk(inputs: RotaryInputs) -> Imagined:
    assert inputs.scaling is not None
    power = inputs.turning / (inputs.turning - 2.0)
    base = inputs.theta * inputs.scaling.factor**power
    return with_mistake(inputs, omega=frequencies(inputs.turning, base, None, inputs.length))


def _long(sentence: str, length: int) -> Suspect:
    return Suspect(
        kind=SCALING,
        sentence=sentence,
        imagine=lambda i: with_mistake(i, omega=frequencies(i.turning, i.theta, i.scaling, length)),
    )


def _length(sentence: str) -> Suspect:
    return Suspect(
        kind=SCALING,
        sentence=sentence,
        imagine=lambda i: with_mistake(
            i, omega=frequencies(i.turning, i.theta, i.scaling, i.x.shape[2])
        ),
    )


def _unblended(inputs: RotaryInputs) -> Imagined:
    scaling = inputs.scaling
    assert scaling is not None
    plain = frequencies(inputs.turning, inputs.theta, None, inputs.length)
    turns = scaling.original_max_position_embeddings * plain / (2 * np.pi)
    slow = turns < scaling.high_freq_factor
    return with_mistake(inputs, omega=np.where(slow, plain / scaling.factor, plain))
