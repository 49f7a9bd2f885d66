"""xFormers on CUDA, by its documented layouts. Unverified: it has never met the library.

https://facebookresearch.github.io/xformers/components/ops.html: ``[B, M, H, K]``, or for grouped
heads ``[B, M, G, H, K]`` with keys expanded over H; ``LowerTriangularFromBottomRightMask`` is
lower-right causality; a tensor bias ``[B, (G,) H, Mq, Mk]`` is added.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from equivalence.backends.cuda_flash_attn import FACTS
from equivalence.backends.head_folding import group_size_of
from equivalence.case import AttentionCase
from equivalence.declaration import attention as declare
from equivalence.errors import Unsupported


def supports(case: AttentionCase) -> bool | str:
    """True, or why not."""
    if case.head_dim % 8 or case.v_dim % 8:
        return "head_dim and value_head_dim must be multiples of 8"
    return True if case.kv_len else "there is no key"


@declare(
    **{**FACTS, "dtypes": ("float32", "float16", "bfloat16"), "masked_rows": None},
    head_order="grouped",
    layout="BSHD",
    supports=supports,
)
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """``memory_efficient_attention``: query ``[B, Sq, H, D]``, key and value ``[B, Skv, Hkv, D]``.

    The mask ``[., ., ., Skv]`` is expanded to all heads; a bool one becomes 0 and -inf.
    """
    batch_size, q_len, num_heads, _ = query.shape
    kv_len, num_kv_heads = key.shape[1:3]
    group = group_size_of(num_heads, num_kv_heads)
    ops = import_module("xformers.ops")
    bias: Any = None
    if mask is not None and causal:
        raise Unsupported("attn_bias is one tensor, or the causal mask")
    if causal:
        bias = ops.fmha.attn_bias.LowerTriangularFromBottomRightMask()
    elif mask is not None:
        added = mask
        if mask.dtype == torch.bool:
            added = torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, -torch.inf)
        whole = added.expand(batch_size, num_heads, q_len, kv_len)
        bias = whole.unflatten(1, (num_kv_heads, group)).contiguous()
    grouped = [
        query.unflatten(2, (num_kv_heads, group)),
        *(x.unsqueeze(3).expand(-1, -1, -1, group, -1) for x in (key, value)),
    ]
    output: Tensor = ops.memory_efficient_attention(*grouped, attn_bias=bias, scale=scale)
    return output.flatten(2, 3)
