"""The float64 rotation with a mistake built in, and how far a target that makes it may be off."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from equivalence.dtypes import Array
from equivalence.rope.inputs import RotaryInputs
from equivalence.rope.reference import Rotation, factor_of, frequencies, pairs, turned


@dataclass(frozen=True, slots=True, kw_only=True)
class Imagined:
    """What a target with a mistake would compute.

    inputs: what it works on (x may be permuted, the scaling another one). order: how it leaves
    the channels of the result, None as they are. passed: what channels that do not turn are
    multiplied with.
    """

    inputs: RotaryInputs
    rotation: Rotation
    order: Array | None = None
    passed: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """One mistake: the diagnosis that names it, its sentence, and the rotation with it.

    imagine returns None where the mistake makes no sense for the inputs.
    """

    kind: str
    sentence: str
    imagine: Callable[[RotaryInputs], Imagined | None]
    declare: str = ""


Suspects = Iterator[Suspect]


def with_mistake(
    inputs: RotaryInputs,
    *,
    positions: Array | None = None,
    omega: Array | None = None,
    channels: tuple[Array, Array] | None = None,
    factor: float | None = None,
    order: Array | None = None,
    passed: float = 1.0,
    **changes: Any,
) -> Imagined:
    """The rotation of ``inputs`` after ``changes``, with some of its parts replaced.

    positions ``[B or 1, S]`` are those that it turns by; the length that scaling sees stays.
    """
    seen = inputs.but(**changes) if changes else inputs
    if omega is None:
        omega = frequencies(seen.turning, seen.theta, seen.scaling, inputs.length)
    first, second = channels if channels is not None else pairs(seen.turning, seen.pairing)
    if factor is None:
        factor = factor_of(seen.scaling, seen.attention_factor)
    places = seen.by_row if positions is None else positions
    rotation = turned(seen.x, places, omega, first, second, factor)
    return Imagined(inputs=seen, rotation=rotation, order=order, passed=passed)


def with_tables(
    imagined: Imagined, *, angle: Array | None = None, table: Callable[[Array], Array] | None = None
) -> Imagined:
    """The same with other angles, or with tables that ``table`` has rounded."""
    old, x = imagined.rotation, imagined.inputs.x
    angle = old.angle if angle is None else angle
    cosine = np.where(old.moves, old.factor * np.cos(angle), 1.0)
    sine = np.where(old.moves, old.factor * np.sin(angle), 0.0)
    if table is not None:
        cosine, sine = table(cosine), table(sine)
    along, across = x * cosine, x[..., old.partner] * sine
    rotation = replace(
        old,
        output=along + old.sign * across,
        size=np.abs(along) + np.abs(across),
        cosine=cosine,
        sine=sine,
    )
    return replace(imagined, rotation=rotation)
