"""Does the softmax subtract its maximum, and do large scores of a small dtype survive?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from equivalence.dtypes import format_of
from equivalence.probes.asking import Asker, probe


@dataclass(frozen=True, slots=True, kw_only=True)
class Stability:
    """subtracts_max: equal scores far beyond the range of exp give the mean of the values.

    fails_at: the smallest score tried at which they do not (None: none). dots_overflow: a product
    q.k beyond the largest number of the dtype, whose scaled score is in range, is not survived.
    """

    subtracts_max: bool
    fails_at: float | None
    dots_overflow: bool


@probe
def stability(asker: Asker) -> Stability:
    """Two calls: equal scores up to 400 (or 3,000 in float64), and an overflowing product."""
    tried = np.asarray([8.0, 16.0, 100.0, 400.0, -100.0, -400.0])
    if asker.dtype == "float64":
        tried = np.asarray([100.0, 800.0, 3000.0, -800.0, -3000.0])
    shape = asker.shape(kv_len=2, head_dim=16)
    root = 2.0 ** np.round(np.log2(shape.head_dim) / 2)
    query, key = np.zeros((*shape.query[:2], len(tried), shape.head_dim)), np.zeros(shape.key)
    query[0, 0, :, 0], key[..., 0] = tried * root / 16, 16.0
    value = np.zeros(shape.value)
    value[:, :, 0] = 1.0
    asker.need(shape.kv_len >= 2, "one key only")
    out = asker.ask_rows(query, key, value)[0, 0, :, 0]
    good = np.abs(out - 1 / shape.kv_len) < 0.05
    bad = np.abs(tried[~good])
    return Stability(
        subtracts_max=bool(good.all()),
        fails_at=float(bad.min()) if bad.size else None,
        dots_overflow=_dots_overflow(asker),
    )


def _dots_overflow(asker: Asker) -> bool:
    """q.k = 2 max_finite where that leaves a scaled score within the range; float16 only."""
    if asker.dtype != "float16":
        return False
    shape = asker.shape(q_len=1, kv_len=2, head_dim=16)
    product = 1.5 * format_of(asker.dtype).max_finite
    each = 2.0 ** np.round(np.log2(product / shape.head_dim) / 2)
    query, key = np.full(shape.query, each), np.full(shape.key, each)
    key[..., 0] *= 1.5
    value = np.zeros(shape.value)
    value[:, :, 0] = 1.0
    out = asker.ask_rows(query, key, value)[0, 0, -1, 0]
    return not abs(out - 1 / shape.kv_len) < 0.05
