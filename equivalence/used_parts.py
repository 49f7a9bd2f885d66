"""How often a search used how much of the bound: a few counts, which add up over runs."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

# Upper edges of all counts but the last, which is of what is beyond the bound.
EDGES: Final = (
    0.0,
    2.0**-12,
    2.0**-10,
    2.0**-8,
    2.0**-6,
    2.0**-5,
    2.0**-4,
    *(eighths / 8 for eighths in range(1, 9)),
)
PLACES: Final = len(EDGES) + 1


def place_of(used: float) -> int:
    """Which count a check belongs to that used so much of its bound; NaN is beyond it."""
    return bisect_left(EDGES, used) if used <= 1.0 else PLACES - 1


def counted_in(histogram: list[int], used: float) -> None:
    """Count one check in ``histogram``, which gets its places with the first."""
    if not histogram:
        histogram.extend([0] * PLACES)
    histogram[place_of(used)] += 1


def added(one: list[int], two: list[int]) -> list[int]:
    """The counts of both; none are lost where one has more places than the other."""
    longer, shorter = sorted((one, two), key=len, reverse=True)
    return [n + m for n, m in zip(longer, [*shorter, *[0] * len(longer)], strict=False)]
