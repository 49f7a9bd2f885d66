"""Grouped heads as one batch of matrix products: ``[B * Hkv]`` products of G * Sq rows each.

The scale is the product's own ``alpha`` (BLAS gemm), so the unscaled scores are never stored.
"""

from __future__ import annotations

import torch
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
    """Attention as two batched products over the flattened (batch, kv head) axis.

    query ``[B, H, Sq, D]``, key ``[B, Hkv, Skv, D]``, value ``[B, Hkv, Skv, Dv]`` ->
    ``[B, H, Sq, Dv]``. Raises Unsupported where H is no multiple of Hkv.
    """
    batch_size, num_heads, q_len, head_dim = query.shape
    num_kv_heads, kv_len = key.shape[1:3]
    fold = fold_of(head_order, num_heads, num_kv_heads)
    if fold.take is not None:
        query = query[:, fold.take]
    products, rows = batch_size * num_kv_heads, fold.group_size * q_len
    slots = num_kv_heads * fold.group_size
    flat_key = key.reshape(products, kv_len, head_dim)
    scores = torch.baddbmm(
        query.new_zeros(1),
        query.reshape(products, rows, head_dim),
        flat_key.transpose(1, 2),
        beta=0,
        alpha=default_scale(scale, head_dim),
    )
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
        softcapped(scores, softcap).view(batch_size, slots, q_len, kv_len),
        attn_mask=taken(attn_mask, fold, 1),
        alibi_slopes=taken(alibi_slopes, fold, 0),
        hidden=hidden,
        kv_lengths=kv_lengths,
    )
    weights = softmax(per_head, taken(sinks, fold, 0), empty="zeros").to(query.dtype)
    flat_value = value.reshape(products, kv_len, value.shape[-1])
    output = torch.bmm(weights.reshape(products, rows, kv_len), flat_value)
    return put_back(output.view(batch_size, slots, q_len, value.shape[-1]), fold)
