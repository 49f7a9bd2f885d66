"""A user's two kernels of latent attention that say what their caches hold."""

import torch

import equivalence


def attend(query_content, query_rotary, keys, rotary, values, scale):
    """The rest of both: scores, lower-right causal, softmax in float32."""
    q_len, kv_len = query_content.shape[2], keys.shape[2]
    scores = scale * (query_content @ keys.mT + query_rotary @ rotary.mT).float()
    hidden = ~torch.ones(q_len, kv_len, dtype=torch.bool).tril(kv_len - q_len)
    weights = scores.masked_fill(hidden, -torch.inf).softmax(-1).nan_to_num(0.0)
    return (weights @ values.float()).to(query_content.dtype)


@equivalence.mla()
def keeps_latents(query_content, query_rotary, latent, key_rotary, w_uk, w_uv, *, scale):
    """Holds the latent and the rotary key."""
    cache = torch.cat([latent, key_rotary], dim=-1)
    keys, values = (latent[:, None].float() @ w.mT.float() for w in (w_uk, w_uv))
    query = (query_content.float(), query_rotary.float())
    keeps_latents.cache_elements = cache.numel()
    return attend(*query, keys, key_rotary[:, None].float(), values, scale).to(latent.dtype)


@equivalence.mla()
def expands_heads(query_content, query_rotary, latent, key_rotary, w_uk, w_uv, *, scale):
    """Right numbers, from a cache of the keys and values of every head."""
    keys, values = (latent[:, None].float() @ w.mT.float() for w in (w_uk, w_uv))
    rotary = key_rotary[:, None].float().expand(-1, w_uk.shape[0], -1, -1)
    expands_heads.cache_elements = keys.numel() + rotary.numel() + values.numel()
    query = (query_content.float(), query_rotary.float())
    return attend(*query, keys, rotary, values, scale).to(latent.dtype)
