"""Grouped heads by broadcasting at rank 5: key and value get a group axis of length one."""

from __future__ import annotations

import torch
from torch import Tensor

from equivalence.backends.head_folding import HeadOrder, group_size_of
from equivalence.backends.torch_masking import (
    biased,
    default_scale,
    hidden_keys,
    softcapped,
    softmax,
)
from equivalence.case import AttentionCase
from equivalence.declaration import attention as declare
from equivalence.errors import Unsupported


def supports(case: AttentionCase) -> bool | str:
    """True, or why not."""
    if not isinstance(case.head_order, str):
        return "broadcasting knows no explicit head map"
    if case.mask is not None and case.mask.hidden == "finfo.min":
        return "hides keys by finfo.min, so a key that is visible at finfo.min counts as hidden"
    return True


@declare(
    dtypes=("float64", "float32", "float16", "bfloat16"),
    causal="lower_right",
    head_order="grouped",
    layout="BHSD",
    profile="eager",
    masked_rows="uniform",
    hidden_nan="leaks",
    deterministic=True,
    gradients=True,
    mask_and_causal=True,
    grouped=True,
    supports=supports,
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
    """Attention whose products are ``[B, Hkv, G, Sq, D] @ [B, Hkv, 1, D, Skv]``.

    query ``[B, H, Sq, D]``, key ``[B, Hkv, Skv, D]``, value ``[B, Hkv, Skv, Dv]`` ->
    ``[B, H, Sq, Dv]``. Interleaved heads put the group axis before the kv head axis, which needs
    no permutation. Hidden keys get the lowest finite number of the dtype, so a row that sees no
    key is the mean of all values.
    Raises Unsupported for an explicit map, and where H is no multiple of Hkv.
    """
    batch_size, num_heads, q_len, head_dim = query.shape
    num_kv_heads, kv_len = key.shape[1:3]
    group_size = group_size_of(num_heads, num_kv_heads)
    if head_order == "grouped":
        heads, axis = (num_kv_heads, group_size), 2
    elif head_order == "interleaved":
        heads, axis = (group_size, num_kv_heads), 1
    else:
        raise Unsupported(f"head_order={head_order!r}: broadcasting knows no explicit map")
    wide_query = query.reshape(batch_size, *heads, q_len, head_dim)
    scores = wide_query @ key.unsqueeze(axis).transpose(-2, -1)
    scores = softcapped(scores * default_scale(scale, head_dim), softcap)
    hidden = hidden_keys(
        q_len,
        kv_len,
        is_causal=is_causal,
        window=window,
        window_size=window_size,
        kv_lengths=kv_lengths,
        device=query.device,
    )
    lowest = torch.finfo(query.dtype).min
    per_head = biased(
        scores.view(batch_size, num_heads, q_len, kv_len),
        attn_mask=attn_mask,
        alibi_slopes=alibi_slopes,
        hidden=hidden,
        kv_lengths=kv_lengths,
        fill=lowest,
    )
    weights = softmax(per_head, sinks, empty="nan").to(query.dtype)
    output = weights.view(batch_size, *heads, q_len, kv_len) @ value.unsqueeze(axis)
    return output.reshape(batch_size, num_heads, q_len, value.shape[-1])
