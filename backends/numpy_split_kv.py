"""Split-KV attention in numpy: partial softmaxes over slices of the keys, merged by their
running maximum and sum (Milakov and Gimelshein 2018, algorithm 3; Dao et al. 2022).

Nothing here is shared with the torch formulations: positions, masks and heads are its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from equivalence.backends.numpy_visibility import near, weighted
from equivalence.declaration import attention as declare
from equivalence.dtypes import Array
from equivalence.errors import Unsupported

SPLITS = 8


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
    lse="natural",
    arrays="numpy",
    grouped=True,
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
    head_order: str | tuple[int, ...] = "grouped",
) -> tuple[Array, Array]:
    """Attention over at most 8 slices of the keys, in float32 (float64 for float64).

    query ``[B, H, Sq, D]``, key ``[B, Hkv, Skv, D]``, value ``[B, Hkv, Skv, Dv]`` -> output
    ``[B, H, Sq, Dv]`` and the natural log-sum-exp ``[B, H, Sq]`` without the sink, -inf where a
    row sees no key. What lies at a hidden key is never used, NaN included.
    Raises Unsupported where H is no multiple of Hkv.
    """
    batch_size, num_heads, q_len, head_dim = query.shape
    num_kv_heads, kv_len = key.shape[1:3]
    if num_kv_heads < 1 or num_heads % num_kv_heads:
        raise Unsupported(
            f"num_heads={num_heads} must be a multiple of num_kv_heads={num_kv_heads}"
        )
    kind = np.float64 if query.dtype == np.float64 else np.float32
    factor: Any = kind(head_dim**-0.5 if scale is None else scale)
    out_dtype = query.dtype
    heads = np.arange(num_heads)
    if head_order == "interleaved":
        reads = heads % num_kv_heads
    elif head_order == "grouped":
        reads = heads // (num_heads // num_kv_heads)
    else:
        reads = np.asarray(head_order)
    lengths = np.full(batch_size, kv_len) if kv_lengths is None else kv_lengths
    own = np.arange(q_len)[None, :] + (lengths[:, None] - q_len)  # position of each query

    rows = (batch_size, num_heads, q_len)
    top = np.full(rows, -np.inf, kind)
    total = np.zeros(rows, kind)
    summed = np.zeros((*rows, value.shape[-1]), kind)
    queries = query.astype(kind)
    width = max(1, -(-kv_len // SPLITS))
    for start in range(0, kv_len, width):
        stop = min(start + width, kv_len)
        keys = key[:, reads, start:stop].astype(kind)
        values = value[:, reads, start:stop].astype(kind)
        position = np.arange(start, stop)
        behind = own[:, None, :, None] - position
        in_use = np.broadcast_to(position < lengths[:, None, None, None], behind.shape)
        keep = in_use & near(behind, is_causal, window, window_size)
        with np.errstate(invalid="ignore", over="ignore"):  # inf - inf of hidden or huge scores
            scores = factor * np.matmul(queries, keys.swapaxes(-1, -2))
            if softcap:
                scores = kind(softcap) * np.tanh(scores / kind(softcap))
            if attn_mask is not None:
                part = attn_mask[..., start:stop]
                if attn_mask.dtype == bool:
                    keep = keep & part
                else:
                    part = part.astype(kind)
                    keep = keep & (part > -np.inf)
                    scores = scores + part
            if alibi_slopes is not None:
                scores = scores - alibi_slopes.astype(kind)[:, None, None] * np.abs(behind)
            scores = np.where(keep, scores, -np.inf).astype(kind)
            new_top = np.maximum(top, scores.max(axis=-1))
            base = np.where(new_top == -np.inf, 0, new_top).astype(kind)
            weights = np.exp(scores - base[..., None])
            shrink = np.exp(top - base)
        total = shrink * total + weights.sum(axis=-1)
        summed = shrink[..., None] * summed + weighted(weights, keep, values)
        top = new_top

    with np.errstate(divide="ignore"):
        lse = np.where(total == 0, -np.inf, top + np.log(total)).astype(kind)
    if sinks is not None:
        sink = np.broadcast_to(sinks.astype(kind)[None, :, None], rows)
        new_top = np.maximum(top, sink)
        shrink = np.exp(top - new_top)
        total = shrink * total + np.exp(sink - new_top)
        summed = shrink[..., None] * summed
    output = summed / np.where(total == 0, kind(1), total)[..., None]
    return output.astype(out_dtype), lse
