"""Grouped-query attention with a mistake that really shipped: key/value heads tiled, not repeated.

`equivalence check examples/tiled_heads.py:attention` finds it, shrinks it and names it.
"""

import torch


def attention(query, key, value, *, attn_mask=None, is_causal=False, scale=None):
    """query [B, H, Sq, D], key [B, Hkv, Skv, D], value [B, Hkv, Skv, Dv] -> [B, H, Sq, Dv]."""
    group, uneven = divmod(query.shape[1], key.shape[1])
    if uneven:
        raise ValueError("query heads must divide among the key/value heads")
    key, value = key.repeat(1, group, 1, 1), value.repeat(1, group, 1, 1)  # repeat_interleave!
    return torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=attn_mask, is_causal=is_causal, scale=scale
    )
