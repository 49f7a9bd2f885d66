"""Keys and values in pages, in plain torch: gathered first, or page by page with a merge."""

from __future__ import annotations

import torch
from torch import Tensor

from equivalence.backends.one_sequence import attend, grouped, visible_keys, wide
from equivalence.declaration import paged as declare

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
def gathered(
    query: Tensor,
    key_pages: Tensor,
    value_pages: Tensor,
    *,
    page_table: Tensor,
    kv_lengths: Tensor,
    causal: bool = False,
    scale: float | None = None,
    window: int | None = None,
    window_size: tuple[int, int] | None = None,
    softcap: float | None = None,
) -> Tensor:
    """Each sequence's own tokens, copied out of its pages, in float32 (float64 for float64).

    query ``[B, H, Sq, D]``, pages ``[P, page_size, Hkv, D]``, page_table ``[B, n]``, kv_lengths
    ``[B]`` -> ``[B, H, Sq, Dv]``; zeros where a query sees no key.
    Raises Unsupported where H is no multiple of Hkv.
    """
    page_size = key_pages.shape[1]
    output = query.new_zeros(*query.shape[:3], value_pages.shape[-1])
    for i, length in enumerate(kv_lengths.tolist()):
        token = torch.arange(length, device=query.device)
        page = page_table[i].long()[token // page_size]
        key = key_pages[page, token % page_size].transpose(0, 1)
        value = value_pages[page, token % page_size].transpose(0, 1)
        seen = visible_keys(
            query.shape[2],
            length,
            causal=causal,
            window=window,
            window_size=window_size,
            device=query.device,
        )
        output[i] = attend(query[i], key, value, seen, scale, softcap)
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
def page_by_page(
    query: Tensor,
    key_pages: Tensor,
    value_pages: Tensor,
    *,
    page_table: Tensor,
    kv_lengths: Tensor,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """All sequences at once, a column of the page table at a time, merged by log-sum-exp.

    Shapes as in :func:`gathered`. A page that a sequence does not use contributes nothing,
    whatever it holds. Raises Unsupported where H is no multiple of Hkv.
    """
    page_size, num_kv_heads = key_pages.shape[1:3]
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    folded = grouped(wide(query), num_kv_heads)  # [B, Hkv, group, Sq, D]
    lengths = kv_lengths.view(-1, 1, 1, 1, 1)
    own = torch.arange(query.shape[2], device=query.device).view(-1, 1) + lengths
    own = own - query.shape[2]
    shape = folded.shape[:-1]
    top = folded.new_full(shape, -torch.inf)
    total = folded.new_zeros(shape)
    summed = folded.new_zeros(*shape, value_pages.shape[-1])
    for column in range(page_table.shape[1]):
        page = page_table[:, column].long()
        position = column * page_size + torch.arange(page_size, device=query.device)
        used = position < lengths
        seen = used & (position <= own) if causal else used.expand(*own.shape[:-1], -1)
        kept = (position < kv_lengths.view(-1, 1))[:, None, :, None]
        key = wide(key_pages[page]).transpose(1, 2).masked_fill(~kept, 0.0).unsqueeze(2)
        value = wide(value_pages[page]).transpose(1, 2).masked_fill(~kept, 0.0).unsqueeze(2)
        scores = factor * (folded @ key.transpose(-1, -2))
        scores = scores.masked_fill(~seen, -torch.inf)
        higher = torch.maximum(top, scores.amax(dim=-1))
        base = higher.masked_fill(higher == -torch.inf, 0.0)
        weights = (scores - base.unsqueeze(-1)).exp()
        shrink = (top - base).exp()
        total = shrink * total + weights.sum(dim=-1)
        summed = shrink.unsqueeze(-1) * summed + weights @ value
        top = higher
    output = summed / total.masked_fill(total == 0, 1.0).unsqueeze(-1)
    return output.flatten(1, 2).to(query.dtype)
