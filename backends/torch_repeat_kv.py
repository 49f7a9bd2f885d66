"""Grouped heads by a copy of key and value for every query head: expand, then reshape."""

from __future__ import annotations

import torch
from torch import Tensor

from equivalence.backends.head_folding import HeadOrder, group_size_of, kv_head_map
from equivalence.backends.torch_masking import (
    biased,
    default_scale,
    hidden_keys,
    softcapped,
    softmax,
)
from equivalence.declaration import attention as declare


def repeat_kv(x: Tensor, num_heads: int, head_order: HeadOrder = "grouped") -> Tensor:
    """``[B, Hkv, S, D]`` -> ``[B, H, S, D]``, as Hugging Face's ``repeat_kv`` does it."""
    batch_size, num_kv_heads, length, width = x.shape
    group_size = group_size_of(num_heads, num_kv_heads)
    shape = (batch_size, num_heads, length, width)
    if head_order == "grouped":
        x = x[:, :, None].expand(batch_size, num_kv_heads, group_size, length, width)
        return x.reshape(shape)
    if head_order == "interleaved":
        x = x[:, None].expand(batch_size, group_size, num_kv_heads, length, width)
        return x.reshape(shape)
    return x.index_select(1, torch.tensor(kv_head_map(head_order, num_heads, num_kv_heads)))


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
    """Eager attention over repeated heads, every intermediate value stored in the dtype.

    query ``[B, H, Sq, D]``, key ``[B, Hkv, Skv, D]``, value ``[B, Hkv, Skv, Dv]`` ->
    ``[B, H, Sq, Dv]``. Raises Unsupported where H is no multiple of Hkv.
    """
    num_heads, q_len = query.shape[1:3]
    key = repeat_kv(key, num_heads, head_order)
    value = repeat_kv(value, num_heads, head_order)
    scores = query @ key.transpose(-2, -1)
    scores = softcapped(scores * default_scale(scale, query.shape[-1]), softcap)
    hidden = hidden_keys(
        q_len,
        key.shape[2],
        is_causal=is_causal,
        window=window,
        window_size=window_size,
        kv_lengths=kv_lengths,
        device=query.device,
    )
    scores = biased(
        scores,
        attn_mask=attn_mask,
        alibi_slopes=alibi_slopes,
        hidden=hidden,
        kv_lengths=kv_lengths,
    )
    return softmax(scores, sinks, empty="zeros").to(query.dtype) @ value
