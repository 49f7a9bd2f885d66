"""Packed tokens in plain torch, as one long sequence under a block-diagonal mask."""

from __future__ import annotations

import torch
from torch import Tensor

from equivalence.backends.one_sequence import attend
from equivalence.declaration import varlen as declare


@declare(
    dtypes=("float64", "float32", "float16", "bfloat16"),
    causal="lower_right",
    profile="f32",
    masked_rows="zeros",
    hidden_nan="leaks",
    deterministic=True,
    grouped=True,
)
def block_diagonal(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """All tokens as one sequence under a block-diagonal mask.

    query ``[total_q, H, D]``, key ``[total_k, Hkv, D]``, value ``[total_k, Hkv, Dv]``,
    cu_seqlens ``[N + 1]`` -> ``[total_q, H, Dv]``. NaN in one sequence reaches the others,
    through zero times NaN. Raises Unsupported where H is no multiple of Hkv.
    """
    own, place = _places(cu_seqlens_q, query.shape[0])
    their, position = _places(cu_seqlens_k, key.shape[0])
    seen = own.view(-1, 1) == their
    if causal:
        shift = (cu_seqlens_k.diff() - cu_seqlens_q.diff()).index_select(0, own)
        seen = seen & (position <= (place + shift).view(-1, 1))
    q, k, v = (x.transpose(0, 1) for x in (query, key, value))
    return attend(q, k, v, seen, scale).transpose(0, 1)


def _places(ends: Tensor, total: int) -> tuple[Tensor, Tensor]:
    """For every packed token, its sequence and its position in it."""
    lens = ends.diff().long()
    sequence = torch.repeat_interleave(torch.arange(len(lens), device=ends.device), lens)
    start = ends[:-1].long().index_select(0, sequence)
    return sequence, torch.arange(total, device=ends.device) - start
