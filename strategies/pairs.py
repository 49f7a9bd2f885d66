"""Options two by two, on purpose: few rows in which every pair of levels stands side by side.

A greedy covering array of strength two (Cohen et al. 1997, "The AETG system"): each row starts
from a pair that no row has yet, and takes for every other factor the level that brings the most
new pairs, as far as the levels may stand together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Any

import numpy as np

from equivalence.case import UNSEEDED, AttentionCase
from equivalence.domain import Domain
from equivalence.strategies.plain import (
    Row,
    attention_allows,
    attention_factors,
    attention_from,
)

Factors = Mapping[str, Sequence[Any]]
Allows = Callable[[Row], bool]
Pair = tuple[tuple[str, Any], tuple[str, Any]]


def attention_pairs(domain: Domain, seed: int) -> Iterator[AttentionCase]:
    """Cases inside ``domain`` that have every two of its options together at least once."""
    rng = np.random.default_rng([seed, 31_415])
    # Where query and key are zero, most options cannot show.
    values = tuple(name for name in domain.values if name not in UNSEEDED) or domain.values
    factors = attention_factors(domain)
    if len(factors.get("lengths", ())) > 1:  # single steps have code of their own in many kernels
        factors["lengths"] = (*factors["lengths"], "one query")
    for row in covering_rows(factors, lambda row: attention_allows(domain, row)):
        yield attention_from(row, domain, rng, values=values, tails=True)


def covering_rows(factors: Factors, allows: Allows = lambda row: True) -> list[Row]:
    """Rows in which every pair of levels that ``allows`` admits occurs; the same on every call.

    allows: whether a row, which may still lack factors, breaks no rule.
    """
    left = dict.fromkeys(possible_pairs(factors, allows))
    rows = []
    while left:
        row = _row(factors, allows, next(iter(left)), left)
        rows.append(row)
        for pair in _pairs(row):
            left.pop(pair, None)
    return rows


def possible_pairs(factors: Factors, allows: Allows) -> Iterator[Pair]:
    """The pairs of levels that some whole row has."""
    for one, other in combinations(factors, 2):
        for first, second in product(factors[one], factors[other]):
            pair = ((one, first), (other, second))
            if _completed(factors, allows, dict(pair), {}) is not None:
                yield pair


def _row(factors: Factors, allows: Allows, start: Pair, left: Mapping[Pair, None]) -> Row:
    row = _completed(factors, allows, dict(start), left)
    assert row is not None  # only pairs that some row has are ever left
    return {name: row[name] for name in factors}


def _completed(factors: Factors, allows: Allows, row: Row, left: Mapping[Pair, None]) -> Row | None:
    """``row`` with a level for every factor, the most useful ones that may stand together."""
    if not allows(row):
        return None
    missing = next((name for name in factors if name not in row), None)
    if missing is None:
        return row

    def gain(level: Any) -> int:
        return sum((held, (missing, level)) in left for held in row.items())

    levels = factors[missing]
    for level in sorted(levels, key=lambda level: -gain(level)) if left else levels:
        found = _completed(factors, allows, {**row, missing: level}, left)
        if found is not None:
            return found
    return None


def _pairs(row: Row) -> Iterator[Pair]:
    """The pairs of a row, in the order of its factors."""
    return combinations(row.items(), 2)
