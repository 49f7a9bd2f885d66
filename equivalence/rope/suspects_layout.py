"""Suspects: which channels turn, against which, by how much, and where the result is left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from equivalence.dtypes import Array
from equivalence.rope.imagining import Imagined, Suspect, Suspects, with_mistake, with_tables
from equivalence.rope.inputs import RotaryInputs
from equivalence.rope.reference import by_channel, factor_of, frequencies, pairs

KIND = "rotary-layout"
RULES = {"half": "(i, i + r/2)", "interleaved": "(2i, 2i + 1)"}


def layouts(inputs: RotaryInputs, *, takes_pairing: bool) -> Suspects:
    """Mistakes of layout that make sense for a call, the simplest first."""
    other = "half" if inputs.pairing == "interleaved" else "interleaved"
    sentence = f"channels are paired {RULES[other]}, expected {RULES[inputs.pairing]}"
    yield Suspect(
        kind=KIND,
        sentence=sentence,
        imagine=lambda i: with_mistake(i, pairing=other),
        declare="" if takes_pairing else f"pairing={other}",
    )
    yield Suspect(
        kind=KIND,
        sentence="tables are laid out for half pairing and channels paired as neighbours: "
        "this is no rotation",
        imagine=lambda i: _mixed(i, tables="half", partners="interleaved"),
    )
    yield Suspect(
        kind=KIND,
        sentence="tables are laid out for neighbours and channels paired across the half: "
        "this is no rotation",
        imagine=lambda i: _mixed(i, tables="interleaved", partners="half"),
    )
    yield Suspect(
        kind=KIND,
        sentence="the input is permuted from neighbours to half order and not put back",
        imagine=lambda i: with_mistake(i, x=i.x[..., _to_half(i)], pairing="half"),
    )
    yield Suspect(
        kind=KIND,
        sentence="the input is permuted from half order to neighbours and not put back",
        imagine=lambda i: with_mistake(
            i, x=i.x[..., np.argsort(_to_half(i))], pairing="interleaved"
        ),
    )
    yield Suspect(
        kind=KIND,
        sentence="the result is left in half order",
        imagine=lambda i: with_mistake(i, order=_to_half(i)),
    )
    yield Suspect(
        kind=KIND,
        sentence="the result is left with neighbours paired",
        imagine=lambda i: with_mistake(i, order=np.argsort(_to_half(i))),
    )
    yield Suspect(
        kind=KIND,
        sentence="channels turn backwards, by minus the angle",
        imagine=lambda i: with_mistake(i, positions=-i.by_row),
    )
    yield Suspect(
        kind=KIND,
        sentence="both halves add, expected that the first subtracts: no rotation",
        imagine=_without_sign,
    )
    yield Suspect(
        kind=KIND, sentence="the tables of cosine and sine are exchanged", imagine=_exchanged
    )
    yield Suspect(
        kind=KIND, sentence="positions run along the heads, expected the tokens", imagine=_by_head
    )
    yield from _exponents()
    yield from _widths()
    yield Suspect(
        kind="dropped-op", sentence="nothing is turned: the output is the input", imagine=_unturned
    )


def _exponents() -> Suspects:
    """How fast each pair turns."""

    def at(sentence: str, theta: Callable[[float, int], float]) -> Suspect:
        def imagine(inputs: RotaryInputs) -> Imagined | None:
            if inputs.turning < 4 or inputs.scaling is not None:
                return None
            return with_mistake(inputs, theta=theta(inputs.theta, inputs.turning))

        return Suspect(kind=KIND, sentence=sentence, imagine=imagine)

    yield at("exponents are i / rotary_dim, expected 2 i / rotary_dim", lambda t, width: t**0.5)
    yield at(
        "exponents are 2 i / (rotary_dim - 2), expected 2 i / rotary_dim",
        lambda t, width: t ** (width / (width - 2)),
    )
    yield Suspect(
        kind=KIND,
        sentence="exponents begin at 2 / rotary_dim, expected 0",
        imagine=lambda i: _slower(i, i.theta ** (-2.0 / i.turning)),
    )
    yield Suspect(
        kind=KIND,
        sentence="the pairs turn in reverse order, the last one fastest",
        imagine=_reversed,
    )


def _widths() -> Suspects:
    """How many channels turn."""
    yield Suspect(
        kind=KIND,
        sentence="rotary_dim is ignored: all channels turn",
        imagine=lambda i: _narrowed(i, i.x.shape[-1] // 2 * 2),
    )
    yield Suspect(
        kind=KIND,
        sentence="all channels turn, at the frequencies of rotary_dim",
        imagine=lambda i: _narrowed(i, i.x.shape[-1] // 2 * 2, exponents=i.turning),
    )
    yield Suspect(
        kind=KIND,
        sentence="half of rotary_dim does not turn",
        imagine=lambda i: _narrowed(i, i.turning // 4 * 2),
    )
    yield Suspect(
        kind=KIND,
        sentence="half of rotary_dim does not turn, the rest does at the right frequencies",
        imagine=lambda i: _narrowed(i, i.turning // 4 * 2, exponents=i.turning),
    )
    yield Suspect(
        kind=KIND,
        sentence="channels of a partial rotation are paired across the head, (i, i + head_dim / 2)",
        imagine=lambda i: _across(i, i.turning),
    )
    yield Suspect(
        kind=KIND,
        sentence="channels of a partial rotation are paired across the head, at the frequencies "
        "of head_dim",
        imagine=lambda i: _across(i, i.x.shape[-1]),
    )
    yield Suspect(
        kind=KIND,
        sentence="exponents are divided by head_dim, expected rotary_dim",
        imagine=_by_head_dim,
    )
    yield Suspect(
        kind=KIND,
        sentence="the last channels turn, expected the first ones",
        imagine=_last_channels,
    )
    yield Suspect(
        kind=KIND,
        sentence="channels past rotary_dim are multiplied by the attention factor",
        imagine=lambda i: with_mistake(i, passed=factor_of(i.scaling, i.attention_factor)),
    )


def _partial(inputs: RotaryInputs) -> bool:
    return inputs.turning < int(inputs.x.shape[-1])


def _to_half(inputs: RotaryInputs) -> Array:
    """From neighbours to half order: 0, 2, 4, ..., 1, 3, 5, ..., and what does not turn."""
    order = np.arange(inputs.x.shape[-1])
    first, second = pairs(inputs.turning, "interleaved")
    order[: inputs.turning] = np.concatenate([first, second])
    return order


def _mixed(inputs: RotaryInputs, *, tables: str, partners: str) -> Imagined:
    head_dim, turning = inputs.x.shape[-1], inputs.turning
    omega = frequencies(turning, inputs.theta, inputs.scaling, inputs.length)
    partner, sign = np.arange(head_dim), np.zeros(head_dim)
    first, second = pairs(turning, partners)
    partner[first], partner[second] = second, first
    sign[first], sign[second] = -1.0, 1.0
    frequency, pair = np.zeros(head_dim), np.zeros(head_dim, int)
    for side in pairs(turning, tables):
        frequency[side], pair[side] = omega, np.arange(len(omega))
    factor = factor_of(inputs.scaling, inputs.attention_factor)
    rotation = by_channel(inputs.x, inputs.by_row, frequency, partner, sign, factor, pair)
    return Imagined(inputs=inputs, rotation=rotation)


def _narrowed(
    inputs: RotaryInputs, rotary_dim: int, *, exponents: int | None = None
) -> Imagined | None:
    """The first ``rotary_dim`` channels turn."""
    if rotary_dim < 2 or rotary_dim == inputs.turning or inputs.scaling is not None:
        return None
    omega = inputs.theta ** (-2.0 * np.arange(rotary_dim // 2) / (exponents or rotary_dim))
    return with_mistake(inputs, omega=omega, channels=pairs(rotary_dim, inputs.pairing))


def _stretched(inputs: RotaryInputs, exponents: int) -> Array:
    plain = inputs.theta ** (-2.0 * np.arange(inputs.turning // 2) / exponents)
    return np.asarray(plain)


def _by_head_dim(inputs: RotaryInputs) -> Imagined | None:
    if not _partial(inputs) or inputs.scaling is not None:
        return None
    return with_mistake(inputs, omega=_stretched(inputs, inputs.x.shape[-1]))


def _across(inputs: RotaryInputs, exponents: int) -> Imagined | None:
    head_dim = inputs.x.shape[-1]
    if not _partial(inputs) or head_dim % 2 or inputs.scaling is not None:
        return None
    first = np.arange(inputs.turning // 2)
    return with_mistake(
        inputs, omega=_stretched(inputs, exponents), channels=(first, first + head_dim // 2)
    )


def _last_channels(inputs: RotaryInputs) -> Imagined | None:
    if not _partial(inputs):
        return None
    first, second = pairs(inputs.turning, inputs.pairing)
    skipped = inputs.x.shape[-1] - inputs.turning
    return with_mistake(inputs, channels=(first + skipped, second + skipped))


def _plain(inputs: RotaryInputs) -> Array:
    return frequencies(inputs.turning, inputs.theta, inputs.scaling, inputs.length)


def _slower(inputs: RotaryInputs, factor: float) -> Imagined:
    return with_mistake(inputs, omega=factor * _plain(inputs))


def _reversed(inputs: RotaryInputs) -> Imagined | None:
    return with_mistake(inputs, omega=_plain(inputs)[::-1]) if inputs.turning >= 4 else None


def _exchanged(inputs: RotaryInputs) -> Imagined:
    plain = with_mistake(inputs)
    return with_tables(plain, angle=np.pi / 2 - plain.rotation.angle)


def _without_sign(inputs: RotaryInputs) -> Imagined:
    plain = with_mistake(inputs)
    both = replace(plain.rotation, sign=np.abs(plain.rotation.sign))
    return with_tables(replace(plain, rotation=both))


def _by_head(inputs: RotaryInputs) -> Imagined | None:
    """The table of a token stands in the place of a head, where there are as many of them."""
    plain = with_mistake(inputs)
    if inputs.x.shape[1] != inputs.x.shape[2] or inputs.x.shape[1] < 2:
        return None
    return with_tables(plain, angle=np.swapaxes(plain.rotation.angle, 1, 2))


def _unturned(inputs: RotaryInputs) -> Imagined:
    return with_mistake(inputs, omega=np.zeros(inputs.turning // 2), factor=1.0)
