"""Compare an output with float64 attention under a bound: facts, never an exception."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from equivalence.bounds import Allowance
from equivalence.dtypes import Array, format_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The facts of one comparison.

    used: worst |actual - expected| / allowed over the judged elements; passes iff used <= 1.
    natural: worst error in units of u sum_j p_j |v_j|. index: of the worst element.
    outside, judged, unjudged: elements beyond the bound, judged, and out of the domain.
    vacuous: B reaches the furthest value on more than half of the elements.
    """

    used: float
    natural: float
    index: tuple[int, ...]
    got: float
    expected: float
    error: float
    allowed: float
    outside: int
    judged: int
    unjudged_nonfinite: int
    vacuous: bool
    nonfinite: bool
    wrong: Array

    @property
    def passes(self) -> bool:
        """Whether every judged element is within its bound."""
        return self.used <= 1.0


def compare(
    actual: Array,
    expected: Array,
    allowance: Allowance,
    *,
    dtype: str,
    rows: Array | None = None,
) -> Comparison:
    """Judge ``actual`` ``[B, H, Sq, Dv]`` against ``expected``.

    rows ``[B, H, Sq]`` (default: all) says which rows count; rows outside the profile's domain
    never do. Infinity is accepted exactly where |expected| + B rounds to infinity in ``dtype``.
    """
    counted = allowance.in_domain if rows is None else allowance.in_domain & rows
    judged, bound = counted[..., None], allowance.allowed
    if not actual.size or not judged.any():
        lost = int(np.count_nonzero(~np.isfinite(actual) & ~judged))
        return Comparison(
            used=0.0, natural=0.0, index=(), got=0.0, expected=0.0, error=0.0, allowed=0.0,
            outside=0, judged=0, unjudged_nonfinite=lost,
            vacuous=True, nonfinite=False, wrong=np.zeros(actual.shape, bool),
        )  # fmt: skip
    possible = judged & (allowance.furthest > 0)
    blind = possible & (bound >= allowance.furthest)
    lost, natural, nonfinite, finite = 0, 0.0, False, np.isfinite(actual)
    if finite.all() and (actual == expected).all():  # as most answers to two like calls are
        worst, wrong = 0.0, np.zeros(actual.shape, bool)
        index = np.unravel_index(judged.argmax(), judged.shape)
    else:
        used, natural = _errors(actual, expected, allowance, judged & finite, dtype)
        scored, wrong = np.where(judged, used, -1.0), judged & ~(used <= 1.0)
        index = np.unravel_index(scored.argmax(), scored.shape)
        worst, nonfinite = float(scored[index]), bool((~finite & wrong).any())
        lost = int(np.count_nonzero(~finite & ~judged))
    got, wanted = float(actual[index]), float(expected[index])
    return Comparison(
        used=worst,
        natural=natural,
        index=tuple(int(i) for i in index),
        got=got,
        expected=wanted,
        error=abs(got - wanted),
        allowed=float(bound[index]),
        outside=int(np.count_nonzero(wrong)),
        judged=int(np.count_nonzero(judged)) * (actual.size // judged.size),
        unjudged_nonfinite=lost,
        vacuous=bool(2 * np.count_nonzero(blind) > np.count_nonzero(possible)),
        nonfinite=nonfinite,
        wrong=wrong,
    )


def _errors(
    actual: Array, expected: Array, allowance: Allowance, usable: Array, dtype: str
) -> tuple[Array, float]:
    """``used`` of every element, and the worst error of the usable ones in natural units."""
    bound, finite = allowance.allowed, np.isfinite(actual)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        error = np.abs(actual - expected)
        used = error / bound
        used[error == 0] = 0.0
        if not finite.all():
            overflows = np.isinf(actual) & (np.abs(expected) + bound >= format_of(dtype).overflow)
            overflows &= np.sign(actual) == np.sign(expected)
            used = np.where(finite, used, np.where(overflows, 0.0, np.inf))
        natural = error / allowance.natural
    return used, float(natural[usable & np.isfinite(natural)].max(initial=0.0))


def other_bits(first: Array, second: Array) -> Array:
    """Where two stored outputs of one dtype differ in their bits: bool, of their shape.

    0.0 and -0.0 differ; NaN is NaN, whatever its payload.
    """
    unsigned = f"u{first.dtype.itemsize}"
    ours, theirs = (np.ascontiguousarray(array).view(unsigned) for array in (first, second))
    both_nan = np.isnan(first.astype(np.float64)) & np.isnan(second.astype(np.float64))
    return np.asarray((ours != theirs) & ~both_nan)
