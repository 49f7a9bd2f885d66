"""The kernel of this repository."""

import torch

import equivalence


@equivalence.attention(
    causal="lower_right", dtypes=["float32", "bfloat16"], profile="f32", deterministic=True
)
def attention(query, key, value, *, is_causal=False, scale=None):
    """query [B, H, Sq, D], key [B, Hkv, Skv, D], value [B, Hkv, Skv, Dv] -> [B, H, Sq, Dv]."""
    group, uneven = divmod(query.shape[1], key.shape[1])
    if uneven:
        raise equivalence.Unsupported("query heads must divide among the key/value heads")
    key, value = (x.float().repeat_interleave(group, 1) for x in (key, value))
    scores = query.float() @ key.transpose(-1, -2)
    scores = scores * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        rows, columns = scores.shape[-2:]
        seen = torch.ones(rows, columns, dtype=torch.bool).tril(columns - rows)
        scores = scores.masked_fill(~seen, float("-inf"))
    return (scores.softmax(-1) @ value).to(query.dtype)
