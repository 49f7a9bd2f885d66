"""Torch's flex_attention, run eagerly: the definition that its compiled kernels must match."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from equivalence.backends.flex_module import flex, uncompiled
from equivalence.backends.head_folding import group_size_of
from equivalence.case import AttentionCase
from equivalence.declaration import attention as declare


def supports(case: AttentionCase) -> bool | str:
    """True, or why not."""
    return True if case.kv_len else "an empty key has no block mask"


@declare(
    dtypes=("float64", "float32", "float16", "bfloat16"),
    causal="lower_right",
    head_order="grouped",
    layout="BHSD",
    profile="flash",
    masked_rows="zeros",
    hidden_nan="leaks",
    deterministic=True,
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
    alibi_slopes: Tensor | None = None,
    kv_lengths: Tensor | None = None,
) -> Tensor:
    """Flex attention with every option as a ``score_mod`` or a ``mask_mod``.

    query ``[B, H, Sq, D]``, key ``[B, Hkv, Skv, D]``, value ``[B, Hkv, Skv, Dv]`` ->
    ``[B, H, Sq, Dv]``. Eager flex has no gradients.
    Raises Unsupported where H is no multiple of Hkv.
    """
    batch_size, num_heads, q_len, _ = query.shape
    kv_len = key.shape[2]
    group_size_of(num_heads, key.shape[1])
    lengths = kv_lengths if kv_lengths is not None else torch.full((batch_size,), kv_len)
    per_pair = None
    if attn_mask is not None:
        per_pair = attn_mask.expand(batch_size, num_heads, q_len, kv_len)

    def score_mod(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        if softcap:
            score = softcap * torch.tanh(score / softcap)
        if per_pair is not None and per_pair.dtype != torch.bool:
            score = score + per_pair[b, h, q, k]
        if alibi_slopes is not None:
            score = score - alibi_slopes[h] * (q + lengths[b] - q_len - k).abs()
        return score

    def mask_mod(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        behind = q + (lengths[b] - q_len) - k
        keep = k < lengths[b]
        if is_causal:
            keep = keep & (behind >= 0)
        if window is not None:
            keep = keep & (behind >= 0) & (behind < window)
        if window_size is not None and window_size[0] >= 0:
            keep = keep & (behind <= window_size[0])
        if window_size is not None and window_size[1] >= 0:
            keep = keep & (-behind <= window_size[1])
        if per_pair is not None and per_pair.dtype == torch.bool:
            keep = keep & per_pair[b, h, q, k]
        return keep

    masked = (
        is_causal
        or window is not None
        or window_size is not None
        or kv_lengths is not None
        or (attn_mask is not None and attn_mask.dtype == torch.bool)
    )
    block_mask = None
    if masked:
        block_mask = flex.create_block_mask(
            mask_mod, batch_size, num_heads, q_len, kv_len, device=query.device
        )
    modifies = bool(softcap) or alibi_slopes is not None or attn_mask is not None
    modifier: Callable[..., Tensor] | None = score_mod if modifies else None
    with uncompiled():
        output: Tensor = flex.flex_attention(
            query,
            key,
            value,
            score_mod=modifier,
            block_mask=block_mask,
            scale=scale,
            enable_gqa=True,
        )
    return output
