"""Which keys a query sees, and sums that look at no other key, in numpy."""

from __future__ import annotations

import numpy as np

from equivalence.dtypes import Array


def near(
    behind: Array, is_causal: bool, window: int | None, window_size: tuple[int, int] | None
) -> Array:
    """True where causality and windows let a query see a key that lies ``behind`` it."""
    keep = np.ones_like(behind, bool)
    if is_causal:
        keep = keep & (behind >= 0)
    if window is not None:
        keep = keep & (behind >= 0) & (behind < window)
    if window_size is not None:
        left, right = window_size
        keep = keep & ((left < 0) | (behind <= left)) & ((right < 0) | (-behind <= right))
    return keep


def weighted(weights: Array, keep: Array, values: Array) -> Array:
    """weights @ values, where the value of a hidden key is not looked at."""
    if np.isfinite(values).all():
        return np.asarray(weights @ values)
    terms = np.where(keep[..., None], weights[..., None] * values[:, :, None], 0)
    return np.asarray(terms.sum(axis=-2))
