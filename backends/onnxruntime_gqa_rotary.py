"""GroupQueryAttention that turns queries and keys itself, the interleaved one packed in one tensor.

Every pair is turned by a whole number of quarter turns, which changes no number but its place and
its sign. Queries and new keys are turned back beforehand, so that what is left is attention, if
the operator turns each of them by the angle of its own position.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from equivalence.backends.onnxruntime_gqa import FACTS, attention, supports
from equivalence.case import AttentionCase
from equivalence.declaration import attention as declare
from equivalence.dtypes import Array

COSINES: Final = np.array([1, 0, -1, 0])
SINES: Final = np.array([0, 1, 0, -1])


def rotary_supports(case: AttentionCase) -> bool | str:
    """True, or a limit of the operator with rotary embedding that a case goes beyond."""
    if case.head_dim % 16:
        return "head_dim must be a multiple of 16"
    return supports(case)


def quarters(length: int, pairs: int) -> Array:
    """How many quarter turns each position and pair is turned by: ``[length, pairs]``."""
    pair = np.arange(pairs)
    turns: Array = (np.arange(length)[:, None] * (pair % 4 + 1) + pair) % 4
    return turns


def turned_back(x: Array, turns: Array, interleaved: bool) -> Array:
    """``x [B, H, S, D]``, turned by -turns ``[S, D / 2]``."""
    cos, sin = COSINES[turns].astype(x.dtype), SINES[turns].astype(x.dtype)
    half = x.shape[-1] // 2
    first, second = (slice(0, None, 2), slice(1, None, 2)) if interleaved else (
        slice(0, half), slice(half, None),
    )  # fmt: skip
    turned = np.empty_like(x)
    with np.errstate(invalid="ignore"):
        turned[..., first] = x[..., first] * cos + x[..., second] * sin
        turned[..., second] = x[..., second] * cos - x[..., first] * sin
    return turned


def _turning(query: Array, key: Array, value: Array, interleaved: bool, **options: Any) -> Array:
    q_len, kv_len = query.shape[2], key.shape[2]
    turns = quarters(kv_len, query.shape[3] // 2)
    past = kv_len - q_len
    new = turned_back(key[:, :, past:], turns[past:], interleaved)
    attributes = {"do_rotary": 1, "rotary_interleaved": int(interleaved)}
    return attention(
        turned_back(query, turns[past:], interleaved),
        np.concatenate([key[:, :, :past], new], axis=2),
        value,
        cos_cache=COSINES[turns].astype(query.dtype),
        sin_cache=SINES[turns].astype(query.dtype),
        attributes=attributes,
        one_tensor=interleaved,
        **options,
    )


def _rotary(interleaved: bool) -> Any:
    def made(
        query: Array,
        key: Array,
        value: Array,
        *,
        attn_mask: Array | None = None,
        scale: float | None = None,
        softcap: float | None = None,
        window: int | None = None,
    ) -> Array:
        return _turning(
            query, key, value, interleaved, attn_mask=attn_mask, scale=scale, softcap=softcap,
            window=window,
        )  # fmt: skip

    made.__name__ = made.__qualname__ = "interleaved" if interleaved else "half"
    made.__doc__ = "Attention with a rotary embedding that is turned back beforehand."
    return declare(**{**FACTS, "supports": rotary_supports})(made)


half = _rotary(False)
interleaved = _rotary(True)
