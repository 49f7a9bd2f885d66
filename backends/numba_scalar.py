"""Attention as three loops over scalars, compiled by numba: nothing is shared with any library.

Everything is float64 inside, and each output is rounded once.
"""

from __future__ import annotations

import numpy as np

from equivalence.backends.head_folding import group_size_of
from equivalence.backends.numba_loops import compiled_loops
from equivalence.declaration import attention as declare
from equivalence.dtypes import Array

UNLIMITED = -1


@declare(
    dtypes=("float64", "float32", "float16", "bfloat16"),
    causal="lower_right",
    head_order="grouped",
    layout="BHSD",
    profile="f32",
    masked_rows="zeros",
    hidden_nan="ignored",
    deterministic=True,
    batch_invariant=True,
    mask_and_causal=True,
    grouped=True,
    arrays="numpy",
)
def attention(
    query: Array,
    key: Array,
    value: Array,
    *,
    attn_mask: Array | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    window: int | None = None,
    window_size: tuple[int, int] | None = None,
    softcap: float | None = None,
    sinks: Array | None = None,
    alibi_slopes: Array | None = None,
    kv_lengths: Array | None = None,
) -> Array:
    """query ``[B, H, Sq, D]``, key ``[B, Hkv, Skv, D]``, value ``[B, Hkv, Skv, Dv]``.

    Returns ``[B, H, Sq, Dv]`` in the dtype of query. Raises Unsupported where H is no multiple
    of Hkv.
    """
    batch_size, num_heads, q_len, head_dim = query.shape
    kv_len = key.shape[2]
    group_size_of(num_heads, key.shape[1])
    left, right = window_size or (UNLIMITED, UNLIMITED)
    if window is not None:
        left, right = window - 1, 0
    if is_causal:
        right = 0
    bias = np.zeros((1, 1, 1, kv_len))
    if attn_mask is not None:
        is_bool = attn_mask.dtype == bool
        bias = np.where(attn_mask, 0.0, -np.inf) if is_bool else attn_mask.astype(np.float64)
    output = np.zeros((*query.shape[:3], value.shape[3]))
    compiled_loops()(
        query.astype(np.float64, order="C"),
        key.astype(np.float64, order="C"),
        value.astype(np.float64, order="C"),
        np.array(np.broadcast_to(bias, (batch_size, num_heads, q_len, kv_len)), order="C"),
        np.full(batch_size, kv_len) if kv_lengths is None else kv_lengths.astype(np.int64),
        np.full(num_heads, -np.inf) if sinks is None else sinks.astype(np.float64),
        np.zeros(num_heads) if alibi_slopes is None else alibi_slopes.astype(np.float64),
        (float(head_dim) ** -0.5 if scale is None else scale, softcap or 0.0),
        (left, right),
        output,
    )
    return output.astype(query.dtype)
