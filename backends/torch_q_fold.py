"""Grouped heads without a copy: the group axis is folded into the query axis.

The queries that read one key/value head are the rows of one product, ``[B, Hkv, G * Sq, D]``
with ``[B, Hkv, D, Skv]``; at decode (Sq = 1) the fold is a plain reshape.
"""

from __future__ import annotations

from torch import Tensor

from equivalence.backends.head_folding import HeadOrder, fold_of
from equivalence.backends.torch_masking import (
    biased,
    default_scale,
    hidden_keys,
    put_back,
    softcapped,
    softmax,
    taken,
)
from equivalence.declaration import attention as declare


@declare(
    dtypes=("float64", "float32", "float16", "bfloat16"),
    causal="lower_right",
    head_order="grouped",
    layout="BHSD",
    profile="eager",
    masked_rows="zeros",
    hidden_nan="leaks",
    deterministic=True,
    gradients=True,
    mask_and_causal=True,
    grouped=True,
)
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    window: int | None = None,
    window_size: tuple[int, int] | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    kv_lengths: Tensor | None = None,
    head_order: HeadOrder = "grouped",
) -> Tensor:
    """Attention with folded queries; the scores are viewed per head only to mask them.

    query ``[B, H, Sq, D]``, key ``[B, Hkv, Skv, D]``, value ``[B, Hkv, Skv, Dv]`` ->
    ``[B, H, Sq, Dv]``. Heads that are not grouped are sorted by the head that they read, and the
    output is put back. Raises Unsupported where H is no multiple of Hkv.
    """
    batch_size, num_heads, q_len, head_dim = query.shape
    num_kv_heads, kv_len = key.shape[1:3]
    fold = fold_of(head_order, num_heads, num_kv_heads)
    sorted_query = taken(query, fold, 1) if num_heads > 1 else query
    assert sorted_query is not None
    slots, rows = num_kv_heads * fold.group_size, fold.group_size * q_len
    folded = sorted_query.reshape(batch_size, num_kv_heads, rows, head_dim)

    scores = (folded @ key.transpose(-2, -1)) * default_scale(scale, head_dim)
    scores = softcapped(scores, softcap)
    per_head = scores.view(batch_size, slots, q_len, kv_len)
    hidden = hidden_keys(
        q_len,
        kv_len,
        is_causal=is_causal,
        window=window,
        window_size=window_size,
        kv_lengths=kv_lengths,
        device=query.device,
    )
    per_head = biased(
        per_head,
        attn_mask=taken(attn_mask, fold, 1),
        alibi_slopes=taken(alibi_slopes, fold, 0),
        hidden=hidden,
        kv_lengths=kv_lengths,
    )
    weights = softmax(per_head, taken(sinks, fold, 0), empty="zeros").to(query.dtype)
    output = weights.reshape(batch_size, num_kv_heads, rows, kv_len) @ value
    return put_back(output.view(batch_size, slots, q_len, value.shape[-1]), fold)
