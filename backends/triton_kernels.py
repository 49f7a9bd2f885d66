"""Two Triton kernels for decoding: grouped attention over a slice of the keys, and the merge."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from equivalence.backends.triton_interpreter import interpreted, jit, tl, triton

SPLITS: Final = 4


@jit
def _slice(  # type: ignore[no-untyped-def]
    query, key, value, output, lse, scale, rows, q_len, kv_len, head_dim, value_dim, width,
    splits, CAUSAL: tl.constexpr, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr,
    E: tl.constexpr,
):  # fmt: skip
    """All query rows of one key/value head over one slice of the keys, by online softmax."""
    head, split = tl.program_id(0), tl.program_id(1)
    m, n, d, e = tl.arange(0, M), tl.arange(0, N), tl.arange(0, D), tl.arange(0, E)
    own = m % q_len + kv_len - q_len
    here = (m[:, None] < rows) & (d[None, :] < head_dim)
    q = tl.load(query + (head * rows + m[:, None]) * head_dim + d[None, :], mask=here, other=0.0)
    top = tl.full([M], float("-inf"), tl.float32)
    total = tl.zeros([M], tl.float32)
    summed = tl.zeros([M, E], tl.float32)
    start = split * width
    stop = tl.minimum(start + width, kv_len)
    for first in range(start, stop, N):
        j = first + n
        place = head * kv_len + j
        inside = j < stop
        k = tl.load(
            key + place[:, None] * head_dim + d[None, :],
            mask=inside[:, None] & (d[None, :] < head_dim), other=0.0,
        )  # fmt: skip
        v = tl.load(
            value + place[:, None] * value_dim + e[None, :],
            mask=inside[:, None] & (e[None, :] < value_dim), other=0.0,
        )  # fmt: skip
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        seen = inside[None, :] & (m[:, None] < rows)
        if CAUSAL:
            seen = seen & (j[None, :] <= own[:, None])
        scores = tl.where(seen, scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        weights = tl.exp(scores - base[:, None])
        shrink = tl.exp(top - base)
        total = total * shrink + tl.sum(weights, 1)
        part = tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        summed = summed * shrink[:, None] + part
        top = higher
    row = (head * splits + split) * rows + m
    mean = summed / tl.where(total == 0.0, 1.0, total)[:, None]
    tl.store(
        output + row[:, None] * value_dim + e[None, :], mean,
        mask=(m[:, None] < rows) & (e[None, :] < value_dim),
    )  # fmt: skip
    log = tl.where(total == 0.0, float("-inf"), top + tl.log(tl.where(total == 0.0, 1.0, total)))
    tl.store(lse + row, log, mask=m < rows)


@jit
def _merge(  # type: ignore[no-untyped-def]
    parts, lses, output, lse, rows, value_dim, splits, S: tl.constexpr, E: tl.constexpr
):
    """One row: the means of its slices, weighted by exp(lse)."""
    head, row = tl.program_id(0), tl.program_id(1)
    s, e = tl.arange(0, S), tl.arange(0, E)
    place = (head * splits + s) * rows + row
    each = tl.load(lses + place, mask=s < splits, other=float("-inf"))
    top = tl.max(each, 0)
    base = tl.where(top == float("-inf"), 0.0, top)
    weights = tl.exp(each - base)
    total = tl.sum(weights, 0)
    part = tl.load(
        parts + place[:, None] * value_dim + e[None, :],
        mask=(s[:, None] < splits) & (e[None, :] < value_dim), other=0.0,
    )  # fmt: skip
    share = tl.where(total == 0.0, 1.0, total)
    mean = tl.sum(part * weights[:, None], 0) / share
    tl.store(output + (head * rows + row) * value_dim + e, mean, mask=e < value_dim)
    log = tl.where(total == 0.0, float("-inf"), base + tl.log(share))
    tl.store(lse + head * rows + row, log)


@interpreted()
def attend(
    query: Tensor, key: Tensor, value: Tensor, scale: float, causal: bool, splits: int
) -> tuple[Tensor, Tensor]:
    """Output in the dtype of query ``[B, H, Sq, Dv]``, and log-sum-exp ``[B, H, Sq]``.

    query ``[B, H, Sq, D]``, key ``[B, Hkv, Skv, D]``, value ``[B, Hkv, Skv, Dv]``; H must be a
    multiple of Hkv. One program for each batch row, key/value head and slice of the keys.
    """
    batch_size, num_heads, q_len, head_dim = query.shape
    num_kv_heads, kv_len, value_dim = key.shape[1], key.shape[2], value.shape[3]
    heads, rows = batch_size * num_kv_heads, num_heads // num_kv_heads * q_len
    wide, on = torch.float32, query.device
    parts = torch.empty(heads, splits, rows, value_dim, dtype=wide, device=on)
    lses = torch.empty(heads, splits, rows, dtype=wide, device=on)
    D, E = (max(16, triton.next_power_of_2(n)) for n in (head_dim, value_dim))
    _slice[(heads, splits)](
        query.contiguous(), key.contiguous(), value.contiguous(), parts, lses, scale, rows, q_len,
        kv_len, head_dim, value_dim, -(-kv_len // splits), splits, CAUSAL=causal,
        M=max(16, triton.next_power_of_2(rows)), N=32, D=D, E=E,
    )  # fmt: skip
    output = torch.empty(heads, rows, value_dim, dtype=query.dtype, device=on)
    lse = torch.empty(heads, rows, dtype=wide, device=on)
    if splits == 1:
        output, lse = parts[:, 0].to(query.dtype), lses[:, 0]
    else:
        S = triton.next_power_of_2(splits)
        _merge[(heads, rows)](parts, lses, output, lse, rows, value_dim, splits, S=S, E=E)
    return output.view(*query.shape[:3], value_dim), lse.view(*query.shape[:3])
