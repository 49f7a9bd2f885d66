"""Grouped heads by ``repeat_interleave``; query and key scaled before their product."""

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


def _repeated(x: Tensor, num_heads: int, head_order: HeadOrder) -> Tensor:
    group_size = group_size_of(num_heads, x.shape[1])
    if head_order == "grouped":
        return torch.repeat_interleave(x, group_size, dim=1)
    if head_order == "interleaved":
        return x.repeat(1, group_size, 1, 1)
    raise Unsupported(f"head_order={head_order!r}: repeat_interleave knows no explicit map")


def supports(case: AttentionCase) -> bool | str:
    """True, or why not."""
    if not isinstance(case.head_order, str):
        return "repeat_interleave knows no explicit head map"
    return True


@declare(
    dtypes=("float64", "float32", "float16", "bfloat16"),
    causal="lower_right",
    head_order="grouped",
    layout="BHSD",
    profile="math",
    masked_rows="nan",
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
    """Attention with both operands of the scores scaled by sqrt|scale|, each rounded to the dtype.

    query ``[B, H, Sq, D]``, key ``[B, Hkv, Skv, D]``, value ``[B, Hkv, Skv, Dv]`` ->
    ``[B, H, Sq, Dv]``. A row that sees no key is NaN: it is what the plain softmax gives.
    Raises Unsupported for an explicit head map, and where H is no multiple of Hkv.
    """
    num_heads, q_len = query.shape[1:3]
    key = _repeated(key, num_heads, head_order)
    value = _repeated(value, num_heads, head_order)
    factor = default_scale(scale, query.shape[-1])
    root = abs(factor) ** 0.5
    scores = (query * (root if factor >= 0 else -root)) @ (key * root).transpose(-2, -1)
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
        softcapped(scores, softcap),
        attn_mask=attn_mask,
        alibi_slopes=alibi_slopes,
        hidden=hidden,
        kv_lengths=kv_lengths,
    )
    return softmax(scores, sinks, empty="nan").to(query.dtype) @ value
