"""Attention of a single sequence, upcast inside, for the packed, paged and cache formulations."""

from __future__ import annotations

import torch
from torch import Tensor

from equivalence.errors import Unsupported


def visible_keys(
    q_len: int,
    kv_len: int,
    *,
    causal: bool = False,
    window: int | None = None,
    window_size: tuple[int, int] | None = None,
    device: torch.device | None = None,
) -> Tensor:
    """Which keys each query sees, the last query standing on the last key: ``[Sq, Skv]``."""
    own = torch.arange(q_len, device=device).view(-1, 1) + (kv_len - q_len)
    behind = own - torch.arange(kv_len, device=device)
    seen = torch.ones_like(behind, dtype=torch.bool)
    if causal:
        seen &= behind >= 0
    if window is not None:
        seen &= (behind >= 0) & (behind < window)
    if window_size is not None:
        left, right = window_size
        seen &= (behind <= left) if left >= 0 else seen
        seen &= (-behind <= right) if right >= 0 else seen
    return seen


def grouped(query: Tensor, num_kv_heads: int) -> Tensor:
    """``[..., H, Sq, D]`` -> ``[..., Hkv, group, Sq, D]``; raises Unsupported for a remainder."""
    num_heads = query.shape[-3]
    if num_kv_heads < 1 or num_heads % num_kv_heads:
        raise Unsupported(
            f"num_heads={num_heads} must be a multiple of num_kv_heads={num_kv_heads}"
        )
    folded: Tensor = query.unflatten(-3, (num_kv_heads, num_heads // num_kv_heads))
    return folded


def wide(x: Tensor) -> Tensor:
    """``x`` in float32, or in float64 where it is that already."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def weights(
    query: Tensor, key: Tensor, seen: Tensor, scale: float | None, softcap: float | None = None
) -> Tensor:
    """Probabilities ``[..., Hkv, group, Sq, Skv]``, zero where a query sees no key.

    query ``[..., H, Sq, D]``, key ``[..., Hkv, Skv, D]``, seen broadcast over the result.
    """
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    folded = grouped(wide(query), key.shape[-3])
    scores = factor * torch.matmul(folded, wide(key).unsqueeze(-3).transpose(-1, -2))
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    scores = scores.masked_fill(~seen, -torch.inf)
    empty = ~seen.any(dim=-1, keepdim=True)
    return torch.where(empty, 0.0, scores.softmax(dim=-1))


def mixed(probabilities: Tensor, value: Tensor, dtype: torch.dtype) -> Tensor:
    """``[..., H, Sq, Dv]`` from probabilities by kv head and value ``[..., Hkv, Skv, Dv]``."""
    output = torch.matmul(probabilities, wide(value).unsqueeze(-3))
    return output.flatten(-4, -3).to(dtype)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    seen: Tensor,
    scale: float | None = None,
    softcap: float | None = None,
) -> Tensor:
    """query ``[..., H, Sq, D]``, key and value ``[..., Hkv, Skv, D]`` -> ``[..., H, Sq, Dv]``."""
    return mixed(weights(query, key, seen, scale, softcap), value, query.dtype)
