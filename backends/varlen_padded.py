"""Packed tokens in plain torch, padded to one batch and unpadded again."""

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

    query ``[total_q, H, D]``, key ``[total_k, Hkv, D]``, value ``[total_k, Hkv, Dv]``,
    cu_seqlens ``[N + 1]`` -> ``[total_q, H, Dv]``; zeros where a query sees no key.
    Raises Unsupported where H is no multiple of Hkv.
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
