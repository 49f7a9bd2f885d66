"""Latent attention with every key and value rebuilt: the whole sequence at once, or step by step.

What DeepSeek-V2's paper writes down (arXiv:2405.04434, eq. 10 to 18), and what an engine does
that keeps the latent but knows nothing of absorption.
"""

from __future__ import annotations

import torch
from torch import Tensor

from equivalence.backends.torch_masking import default_scale, hidden_keys, softmax
from equivalence.declaration import mla as declare

DTYPES = ("float64", "float32", "float16", "bfloat16")


def rebuilt(
    latent: Tensor, key_rotary: Tensor, w_uk: Tensor, w_uv: Tensor
) -> tuple[Tensor, Tensor]:
    """Keys ``[B, H, S, d + dR]`` and values ``[B, H, S, dv]`` of every head, in the dtype."""
    keys = latent[:, None] @ w_uk.transpose(-2, -1)
    values = latent[:, None] @ w_uv.transpose(-2, -1)
    shared = key_rotary[:, None].expand(-1, w_uk.shape[0], -1, -1)
    return torch.cat([keys, shared], dim=-1), values


@declare(
    dtypes=DTYPES,
    causal="lower_right",
    profile="eager",
    masked_rows="zeros",
    deterministic=True,
)
def full_sequence(
    query_content: Tensor,
    query_rotary: Tensor,
    latent: Tensor,
    key_rotary: Tensor,
    w_uk: Tensor,
    w_uv: Tensor,
    *,
    scale: float | None = None,
) -> Tensor:
    """Expanded, all queries under one causal mask -> ``[B, H, Sq, dv]``."""
    query = torch.cat([query_content, query_rotary], dim=-1)
    keys, values = rebuilt(latent, key_rotary, w_uk, w_uv)
    scores = (query @ keys.transpose(-2, -1)) * default_scale(scale, query.shape[-1])
    hidden = hidden_keys(query.shape[2], latent.shape[1], is_causal=True, device=query.device)
    assert hidden is not None
    scores = scores.masked_fill(hidden, -torch.inf)
    return softmax(scores, None, empty="zeros").to(query.dtype) @ values


@declare(
    dtypes=DTYPES,
    causal="lower_right",
    profile="eager",
    masked_rows="zeros",
    hidden_nan="ignored",
    deterministic=True,
)
def step(
    query_content: Tensor,
    query_rotary: Tensor,
    latent: Tensor,
    key_rotary: Tensor,
    w_uk: Tensor,
    w_uv: Tensor,
    *,
    scale: float | None = None,
) -> Tensor:
    """Expanded, one query at a time over the tokens before it, all rebuilt for each."""
    query = torch.cat([query_content, query_rotary], dim=-1)
    factor = default_scale(scale, query.shape[-1])
    batch_size, num_heads, q_len = query.shape[:3]
    output = query.new_zeros(batch_size, num_heads, q_len, w_uv.shape[1])
    for row in range(q_len):
        known = latent.shape[1] - q_len + row + 1
        if known < 1:
            continue
        keys, values = rebuilt(latent[:, :known], key_rotary[:, :known], w_uk, w_uv)
        scores = (query[:, :, row : row + 1] @ keys.transpose(-2, -1)) * factor
        output[:, :, row : row + 1] = softmax(scores, None, empty="nan").to(query.dtype) @ values
    return output
