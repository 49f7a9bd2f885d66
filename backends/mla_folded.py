"""Latent attention with the up-projections folded into W_Q and W_O, as the paper says they can be.

W_Q^T W_UK becomes one matrix from the layer's input to the latent, W_UV and W_O one from the
latent to the layer's output (DeepSeek-V2, section 2.1.2). A kernel of the contract is handed
queries, not the layer's input; so the layer here has a query projection that is a signed
permutation over all heads, and so is its output projection: both are exact in every format, and
the input and the output of the layer follow from what is given.
"""

from __future__ import annotations

import torch
from torch import Tensor

from equivalence.backends.torch_masking import default_scale, hidden_keys, softmax
from equivalence.declaration import mla as declare


def signed_permutation(size: int) -> tuple[Tensor, Tensor]:
    """(order, sign): y = sign * x[order], far from the identity wherever ``size`` allows it."""
    order = torch.arange(size).roll(size // 2).flip(0)
    return order, 1.0 - 2.0 * (torch.arange(size) % 2)


def as_matrix(order: Tensor, sign: Tensor, like: Tensor) -> Tensor:
    """The square matrix P of y = P x."""
    matrix = torch.zeros(len(order), len(order), dtype=like.dtype)
    matrix[torch.arange(len(order)), order] = sign.to(like.dtype)
    return matrix


@declare(
    dtypes=("float64", "float32", "float16", "bfloat16"),
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
    """Two folded matrices instead of four projections -> ``[B, H, Sq, dv]``."""
    batch_size, num_heads, q_len, head_dim = query_content.shape
    v_dim = w_uv.shape[1]
    w_q = as_matrix(*signed_permutation(num_heads * head_dim), like=w_uk)
    w_o = as_matrix(*signed_permutation(num_heads * v_dim), like=w_uv)
    # The layer's input, of which W_Q makes the queries: P has its transpose for an inverse.
    stacked = query_content.transpose(1, 2).reshape(batch_size, q_len, num_heads * head_dim)
    hidden_states = stacked @ w_q
    # Folded once, when a model is loaded: [H, dc, hidden] and [H, hidden, dc].
    into_latent = w_uk.transpose(-2, -1) @ w_q.view(num_heads, head_dim, -1)
    out_of_latent = w_o.view(-1, num_heads, v_dim).transpose(0, 1) @ w_uv

    absorbed = hidden_states[:, None] @ into_latent.transpose(-2, -1)
    query = torch.cat([absorbed, query_rotary], dim=-1)
    cache = torch.cat([latent, key_rotary], dim=-1)[:, None]
    scores = query @ cache.transpose(-2, -1)
    scores = scores * default_scale(scale, head_dim + query_rotary.shape[-1])
    hidden = hidden_keys(q_len, latent.shape[1], is_causal=True)
    assert hidden is not None
    scores = scores.masked_fill(hidden, -torch.inf)
    sums = softmax(scores, None, empty="zeros").to(query.dtype) @ latent[:, None]
    layer_output = (sums @ out_of_latent.transpose(-2, -1)).sum(dim=1)
    heads = layer_output @ w_o  # its transpose, from the right: back to the heads side by side
    return heads.view(batch_size, q_len, num_heads, v_dim).transpose(1, 2)
