"""Packed tokens in plain torch: one sequence after the other, or padded to one batch."""

from __future__ import annotations

import torch
from torch import Tensor

from equivalence.backends.one_sequence import attend, visible_keys
from equivalence.declaration import varlen as declare

DTYPES = ("float64", "float32", "float16", "bfloat16")


@declare(
    dtypes=DTYPES,
    causal="lower_right",
    profile="f32",
    masked_rows="zeros",
    hidden_nan="ignored",
    deterministic=True,
    grouped=True,
)
def one_by_one(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    causal: bool = False,
    scale: float | None = None,
    window: int | None = None,
    window_size: tuple[int, int] | None = None,
    softcap: float | None = None,
) -> Tensor:
    """Each sequence by itself, in float32 (float64 for float64).

    query ``[total_q, H, D]``, key ``[total_k, Hkv, D]``, value ``[total_k, Hkv, Dv]``,
    cu_seqlens ``[N + 1]`` -> ``[total_q, H, Dv]``; zeros where a query sees no key.
    Raises Unsupported where H is no multiple of Hkv.
    """
    output = query.new_zeros(*query.shape[:2], value.shape[-1])
    ends_q, ends_k = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    for i in range(len(ends_q) - 1):
        rows, keys = slice(*ends_q[i : i + 2]), slice(*ends_k[i : i + 2])
        q, k, v = (x.transpose(0, 1) for x in (query[rows], key[keys], value[keys]))
        seen = visible_keys(
            q.shape[1],
            k.shape[1],
            causal=causal,
            window=window,
            window_size=window_size,
            device=query.device,
        )
        output[rows] = attend(q, k, v, seen, scale, softcap).transpose(0, 1)
    return output


@declare(
    dtypes=DTYPES,
    causal="lower_right",
    profile="f32",
    masked_rows="zeros",
    hidden_nan="ignored",
    deterministic=True,
    grouped=True,
)
def padded(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    causal: bool = False,
    scale: float | None = None,
    softcap: float | None = None,
) -> Tensor:
    """All sequences in one batch, padded on the right to max_seqlen, and unpadded again.

    Shapes as in :func:`one_by_one`. Raises Unsupported where H is no multiple of Hkv.
    """
    q_lens, kv_lens = cu_seqlens_q.diff(), cu_seqlens_k.diff()
    q = _padded(query, q_lens, max_seqlen_q)
    k = _padded(key, kv_lens, max_seqlen_k)
    v = _padded(value, kv_lens, max_seqlen_k)
    position = torch.arange(max_seqlen_k, device=query.device)
    own = torch.arange(max_seqlen_q, device=query.device)
    seen = (position < kv_lens.view(-1, 1, 1)).expand(-1, max_seqlen_q, -1)
    if causal:
        shift = (kv_lens - q_lens).view(-1, 1, 1)
        seen = seen & (position <= own.view(1, -1, 1) + shift)
    output = attend(q, k, v, seen[:, None, None], scale, softcap).transpose(1, 2)
    real = own < q_lens.view(-1, 1)
    return output[real]


def _padded(packed: Tensor, lens: Tensor, longest: int) -> Tensor:
    """``[total, H, D]`` -> ``[N, H, longest, D]``, zeros behind the end of each sequence."""
    batch = packed.new_zeros(len(lens), longest, *packed.shape[1:])
    real = torch.arange(longest, device=packed.device) < lens.view(-1, 1)
    batch[real] = packed
    return batch.transpose(1, 2)


@declare(
    dtypes=DTYPES,
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

    Shapes as in :func:`one_by_one`. NaN in one sequence reaches the others, through zero times
    NaN. Raises Unsupported where H is no multiple of Hkv.
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
