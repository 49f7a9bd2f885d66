"""Attention as loops over scalars in float64; the numbers of one output row are never an array."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np


@cache
def compiled_loops() -> Any:
    """The loops, compiled at the first call."""
    from numba import njit

    return njit(_rows, error_model="numpy")


def _rows(  # type: ignore[no-untyped-def]
    query, key, value, bias, lengths, sinks, slopes, factors, window, output
) -> None:
    scale, softcap = factors
    left, right = window
    group = query.shape[1] // key.shape[1]
    scores = np.empty(key.shape[2])
    for b in range(query.shape[0]):
        for h in range(query.shape[1]):
            for i in range(query.shape[2]):
                own = i + lengths[b] - query.shape[2]
                top = sinks[h]
                for j in range(lengths[b]):
                    scores[j] = -np.inf
                    hidden = (left >= 0 and j < own - left) or (right >= 0 and j > own + right)
                    if hidden or bias[b, h, i, j] == -np.inf:
                        continue
                    score = 0.0
                    for d in range(query.shape[3]):
                        score += query[b, h, i, d] * key[b, h // group, j, d]
                    score *= scale
                    if softcap > 0.0:
                        score = softcap * math.tanh(score / softcap)
                    score += bias[b, h, i, j] - slopes[h] * abs(own - j)
                    scores[j] = score
                    if not score <= top:  # NaN comes through
                        top = score
                total = 0.0 if sinks[h] == -np.inf else math.exp(sinks[h] - top)
                for j in range(lengths[b]):
                    if scores[j] == -np.inf and top == top:
                        continue
                    weight = math.exp(scores[j] - top)
                    total += weight
                    for d in range(value.shape[3]):
                        output[b, h, i, d] += weight * value[b, h // group, j, d]
                if total != 0.0:
                    for d in range(value.shape[3]):
                        output[b, h, i, d] /= total
