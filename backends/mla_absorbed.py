"""Latent attention against the cache itself: W_UK goes into the query, W_UV comes after the sum.

q^C . (W_UK c) = (W_UK^T q^C) . c  and  sum_j p_j W_UV c_j = W_UV sum_j p_j c_j: exact identities
(DeepSeek-V2, section 2.1.2), so no key and no value is ever rebuilt.
"""

from __future__ import annotations

import torch
from torch import Tensor

from equivalence.backends.torch_masking import default_scale, hidden_keys, softmax
from equivalence.declaration import mla as declare

DTYPES = ("float64", "float32", "float16", "bfloat16")


def absorbed_query(query_content: Tensor, query_rotary: Tensor, w_uk: Tensor) -> Tensor:
    """``[B, H, Sq, dc + dR]``: the query in the coordinates of the cache."""
    return torch.cat([query_content @ w_uk, query_rotary], dim=-1)


def width(query_content: Tensor, query_rotary: Tensor) -> int:
    """d + dR: absorption changes the length of the dot product, and not its scale."""
    return query_content.shape[-1] + query_rotary.shape[-1]


@declare(
    dtypes=DTYPES,
    causal="lower_right",
    profile="eager",
    masked_rows="zeros",
    deterministic=True,
)
def attention(
    query_content: Tensor,
    query_rotary: Tensor,
    latent: Tensor,
    key_rotary: Tensor,
    w_uk: Tensor,
    w_uv: Tensor,
    *,
    scale: float | None = None,
) -> Tensor:
    """Absorbed, spelled out, each head against the shared cache -> ``[B, H, Sq, dv]``."""
    query = absorbed_query(query_content, query_rotary, w_uk)
    cache = torch.cat([latent, key_rotary], dim=-1)[:, None]
    scores = query @ cache.transpose(-2, -1)
    scores = scores * default_scale(scale, width(query_content, query_rotary))
    hidden = hidden_keys(query.shape[2], latent.shape[1], is_causal=True, device=query.device)
    assert hidden is not None
    scores = scores.masked_fill(hidden, -torch.inf)
    sums = softmax(scores, None, empty="zeros").to(query.dtype) @ latent[:, None]
    return sums @ w_uv.transpose(-2, -1)


@declare(
    dtypes=DTYPES,
    causal="lower_right",
    profile="eager",
    masked_rows="zeros",
    deterministic=True,
)
def q_fold(
    query_content: Tensor,
    query_rotary: Tensor,
    latent: Tensor,
    key_rotary: Tensor,
    w_uk: Tensor,
    w_uv: Tensor,
    *,
    scale: float | None = None,
) -> Tensor:
    """Absorbed, all heads as more rows of one query: multi-query attention over the latent."""
    batch_size, num_heads, q_len = query_content.shape[:3]
    kv_len = latent.shape[1]
    query = absorbed_query(query_content, query_rotary, w_uk).flatten(1, 2)
    cache = torch.cat([latent, key_rotary], dim=-1)
    scores = query @ cache.transpose(-2, -1)
    scores = scores * default_scale(scale, width(query_content, query_rotary))
    hidden = hidden_keys(q_len, kv_len, is_causal=True, device=query.device)
    assert hidden is not None
    by_head = scores.view(batch_size, num_heads, q_len, kv_len).masked_fill(hidden, -torch.inf)
    probabilities = softmax(by_head, None, empty="zeros").to(query.dtype)
    sums = probabilities.flatten(1, 2) @ latent
    return sums.view(batch_size, num_heads, q_len, -1) @ w_uv.transpose(-2, -1)
