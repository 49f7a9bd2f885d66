"""Latent attention with the up-projections folded into W_Q and W_O, as the paper says they can be.

W_Q^T W_UK becomes one matrix from the layer's input to the latent, W_UV and W_O one from the
latent to the layer's output (DeepSeek-V2, section 2.1.2). A kernel of the contract is handed
queries, not the layer's input; so the layer here has, for each head, a query and an output
projection that are signed permutations: both are exact in every format, and the input and the
output of the layer follow from what is given.
"""

from __future__ import annotations

import torch
from torch import Tensor

from equivalence.backends.torch_masking import default_scale, hidden_keys, softmax
from equivalence.declaration import mla as declare


def signed_permutation(size: int, like: Tensor) -> Tensor:
    """A matrix P with P P^T = 1, far from the identity wherever ``size`` allows it."""
    order = torch.arange(size).roll(size // 2).flip(0)
    matrix = torch.zeros(size, size, dtype=like.dtype, device=like.device)
    matrix[torch.arange(size), order] = (1.0 - 2.0 * (torch.arange(size) % 2)).to(like)
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
    head_dim, v_dim = query_content.shape[-1], w_uv.shape[1]
    w_q, w_o = signed_permutation(head_dim, w_uk), signed_permutation(v_dim, w_uv)
    hidden_states = query_content @ w_q  # of which W_Q makes the queries: W_Q x = q
    # Folded once, when a model is loaded: [H, dc, d] and [H, dv, dc].
    into_latent = w_uk.transpose(-2, -1) @ w_q
    out_of_latent = w_o @ w_uv

    absorbed = hidden_states @ into_latent.transpose(-2, -1)
    query = torch.cat([absorbed, query_rotary], dim=-1)
    cache = torch.cat([latent, key_rotary], dim=-1)[:, None]
    scores = query @ cache.transpose(-2, -1)
    scores = scores * default_scale(scale, head_dim + query_rotary.shape[-1])
    hidden = hidden_keys(query.shape[2], latent.shape[1], is_causal=True, device=query.device)
    assert hidden is not None
    scores = scores.masked_fill(hidden, -torch.inf)
    sums = softmax(scores, None, empty="zeros").to(query.dtype) @ latent[:, None]
    layer_output = sums @ out_of_latent.transpose(-2, -1)
    return layer_output @ w_o  # W_O^T from the right: back to what the heads gave
