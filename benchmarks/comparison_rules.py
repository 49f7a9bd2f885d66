"""The rules by which kernels are accepted elsewhere, each as a plain comparison of two tensors.

Every rule gets the output of a kernel, float64 attention rounded to the dtype of the output (more
exact than what the suites compare with, so that a rejection is not the reference's fault), and
what eager attention in the same dtype gives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch

from equivalence.dtypes import Array

COSINE: Final = 0.999
CORRELATION: Final = 0.99
SHARE: Final = 0.98
LOOSE: Final = {"float64": 1e-3, "float32": 1e-3, "float16": 1e-2, "bfloat16": 1e-2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One tensor of one call: the elements that count, flat, as float64 images.

    sound: whether all of them are within the derived bound.
    """

    actual: Array
    expected: Array
    eager: Array
    dtype: str
    sound: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One way of saying that two tensors are the same."""

    name: str
    says: str
    accepts: Callable[[Part], bool]


def _error(actual: Array, expected: Array) -> Array:
    """|actual - expected|; 0 where both are the same infinity, NaN where one is NaN."""
    with np.errstate(invalid="ignore"):
        return np.where(actual == expected, 0.0, np.abs(actual - expected))


def assert_close(part: Part) -> bool:
    """torch.testing.assert_close with its defaults for the dtype."""
    dtype = getattr(torch, part.dtype)
    actual, expected = (torch.from_numpy(x).to(dtype) for x in (part.actual, part.expected))
    try:
        torch.testing.assert_close(actual, expected)
    except AssertionError:
        return False
    return True


def twice_the_reference(part: Part) -> bool:
    """The largest error is at most twice the largest error of eager attention."""
    ours = _error(part.actual, part.expected).max(initial=0.0)
    theirs = _error(part.eager, part.expected).max(initial=0.0)
    return bool(ours <= 2 * theirs)


def within(tolerance: float) -> Callable[[Part], bool]:
    """No error is larger than ``tolerance``."""
    return lambda part: bool((_error(part.actual, part.expected) <= tolerance).all())


def most_elements(part: Part) -> bool:
    """98% of the elements are within a loose tolerance, absolute and relative."""
    tolerance = LOOSE[part.dtype]
    near = _error(part.actual, part.expected) <= tolerance * (1 + np.abs(part.expected))
    return not near.size or bool(near.mean() >= SHARE)


def _aligned(actual: Array, expected: Array, least: float) -> bool:
    if not np.isfinite(actual).all():
        return False
    lengths = np.linalg.norm(actual), np.linalg.norm(expected)
    if not all(lengths):
        return not any(lengths)
    return bool(actual @ expected >= least * lengths[0] * lengths[1])


def cosine(part: Part) -> bool:
    """The cosine of the angle between the two tensors."""
    return _aligned(part.actual, part.expected, COSINE)


def correlation(part: Part) -> bool:
    """Pearson's coefficient; two constant tensors are told by their values alone."""
    actual, expected = part.actual, part.expected
    if not actual.size or not np.isfinite(actual).all():
        return not actual.size
    if np.ptp(expected) == 0:
        return most_elements(part)
    return _aligned(actual - actual.mean(), expected - expected.mean(), CORRELATION)


def bound(part: Part) -> bool:
    """Every element is within the derived bound of this package, and nothing else is asked."""
    return part.sound


RULES: Final = (
    Rule(name="assert_close", says="`torch.testing.assert_close`, defaults", accepts=assert_close),
    Rule(
        name="twice",
        says="largest error at most twice that of eager attention in the dtype (FlashAttention)",
        accepts=twice_the_reference,
    ),
    Rule(name="1e-2", says="every error at most 1e-2", accepts=within(1e-2)),
    Rule(name="1e-3", says="every error at most 1e-3", accepts=within(1e-3)),
    Rule(
        name="98%",
        says="98% of the elements within 1e-2 (float32: 1e-3), absolute and relative",
        accepts=most_elements,
    ),
    Rule(name="cosine", says=f"cosine at least {COSINE}", accepts=cosine),
    Rule(name="correlation", says=f"correlation at least {CORRELATION}", accepts=correlation),
    Rule(name="bound", says="the bound of this package, on the same outputs", accepts=bound),
)
