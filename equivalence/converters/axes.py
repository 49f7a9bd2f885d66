"""What a converter is told of an axis whose length may change from call to call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicAxis:
    """An axis that is called ``name``; axes of one name have one length.

    low, high: the shortest and the longest length. choices: the only lengths, where there are but
    a few; the first is the example's.
    """

    name: str
    low: int
    high: int
    choices: tuple[int, ...] = ()


# Argument of ``forward`` -> axis -> what is said of it.
DynamicShapes = Mapping[str, Mapping[int, DynamicAxis]]
