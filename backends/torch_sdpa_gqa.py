"""Torch's scaled_dot_product_attention with enable_gqa, and the kernel that it chooses itself."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from equivalence.backends.head_folding import group_size_of
from equivalence.backends.known_callables import FLASH_WITH_GQA
from equivalence.case import AttentionCase
from equivalence.declaration import attention as declare

DTYPES = ("float64", "float32", "float16", "bfloat16")


def choice_supports(case: AttentionCase) -> bool | str:
    """True, or why not: torch 2.13's flash kernel fills -inf in first and scales afterwards."""
    if case.causal is not None and case.scale is not None and case.scale <= 0:
        return f"is_causal with scale={case.scale} gives NaN"
    return True


@declare(
    dtypes=DTYPES,
    causal="upper_left",
    head_order="grouped",
    layout="BHSD",
    profile="flash",
    masked_rows="zeros",
    hidden_nan="leaks",
    deterministic=True,
    gradients=True,
    grouped=True,
    supports=choice_supports,
    known_faults=FLASH_WITH_GQA,
)
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """SDPA with grouped heads and the kernel that torch chooses.

    query ``[B, H, Sq, D]``, key ``[B, Hkv, Skv, D]``, value ``[B, Hkv, Skv, Dv]`` ->
    ``[B, H, Sq, Dv]``. Raises Unsupported where H is no multiple of Hkv.
    """
    group_size_of(query.shape[1], key.shape[1])
    return functional.scaled_dot_product_attention(
        query, key, value, attn_mask=attn_mask, is_causal=is_causal, scale=scale, enable_gqa=True
    )
