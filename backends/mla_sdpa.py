"""Latent attention against the cache itself, through torch's SDPA."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from equivalence.backends.mla_absorbed import DTYPES, absorbed_query, width
from equivalence.backends.torch_masking import default_scale, hidden_keys
from equivalence.declaration import mla as declare
from equivalence.latent.case import MlaCase


def sdpa_supports(case: MlaCase) -> bool | str:
    """True, or why not: an empty cache has no mask that SDPA could broadcast."""
    return "there is no token" if case.kv_len == 0 else True


@declare(
    dtypes=DTYPES,
    causal="lower_right",
    profile="flash",
    masked_rows="zeros",
    deterministic=True,
    supports=sdpa_supports,
)
def sdpa(
    query_content: Tensor,
    query_rotary: Tensor,
    latent: Tensor,
    key_rotary: Tensor,
    w_uk: Tensor,
    w_uv: Tensor,
    *,
    scale: float | None = None,
) -> Tensor:
    """Absorbed, through SDPA with one key/value head, whose values are narrower than its keys."""
    query = absorbed_query(query_content, query_rotary, w_uk)
    cache = torch.cat([latent, key_rotary], dim=-1)[:, None]
    hidden = hidden_keys(query.shape[2], latent.shape[1], is_causal=True, device=query.device)
    assert hidden is not None
    sums = functional.scaled_dot_product_attention(
        query,
        cache,
        latent[:, None],
        attn_mask=~hidden,
        scale=default_scale(scale, width(query_content, query_rotary)),
        enable_gqa=True,
    )
    return sums @ w_uv.transpose(-2, -1)
