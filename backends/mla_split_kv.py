"""Absorbed latent attention in numpy, over slices of the cache merged by their log-sum-exp.

Each slice gives a normalised sum of latents and a log-sum-exp; a slice without a visible token
weighs nothing (-inf). Nothing is shared with the torch formulations.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from equivalence.declaration import mla as declare
from equivalence.dtypes import Array

SPLITS = 6


@declare(
    dtypes=("float64", "float32", "float16", "bfloat16"),
    causal="lower_right",
    profile="f32",
    masked_rows="zeros",
    hidden_nan="ignored",
    deterministic=True,
    arrays="numpy",
)
def attention(
    query_content: Array,
    query_rotary: Array,
    latent: Array,
    key_rotary: Array,
    w_uk: Array,
    w_uv: Array,
    *,
    scale: float | None = None,
) -> Array:
    """Absorbed over at most 6 slices, inside in float32 (float64 for float64)."""
    wide: Any = np.float64 if query_content.dtype == np.float64 else np.float32
    batch_size, num_heads, q_len, head_dim = query_content.shape
    kv_len, latent_dim = latent.shape[1:]
    factor = wide((head_dim + query_rotary.shape[-1]) ** -0.5 if scale is None else scale)
    absorbed = query_content.astype(wide) @ w_uk.astype(wide)
    rotary = query_rotary.astype(wide)
    rows = (batch_size, num_heads, q_len)
    merged, merged_lse = np.zeros((*rows, latent_dim), wide), np.full(rows, -np.inf, wide)
    width = max(1, -(-kv_len // SPLITS))
    own = np.arange(q_len)[:, None] + (kv_len - q_len)
    for start in range(0, kv_len, width):
        tokens = slice(start, min(start + width, kv_len))
        c = latent[:, None, tokens].astype(wide)
        k = key_rotary[:, None, tokens].astype(wide)
        keep = np.arange(tokens.start, tokens.stop) <= own
        with np.errstate(invalid="ignore", over="ignore"):
            scores = factor * (absorbed @ c.swapaxes(-1, -2) + rotary @ k.swapaxes(-1, -2))
        scores = np.where(keep, scores, -np.inf).astype(wide)
        part, lse = _slice(scores, c, keep)
        merged, merged_lse = _merged(merged, merged_lse, part, lse)
    output = merged @ w_uv.astype(wide).swapaxes(-1, -2)
    return np.asarray(output.astype(query_content.dtype))


def _slice(scores: Array, latent: Array, keep: Array) -> tuple[Array, Array]:
    """The weighted mean of the visible latents of one slice, and its log-sum-exp."""
    top = scores.max(axis=-1)
    base = np.where(top == -np.inf, scores.dtype.type(0), top)
    weights = np.exp(scores - base[..., None])
    total = weights.sum(axis=-1)
    if np.isfinite(latent).all():
        summed = weights @ latent
    else:  # what lies at a hidden token is never used
        summed = np.where(keep[..., None], weights[..., None] * latent[:, :, None], 0).sum(axis=-2)
    with np.errstate(divide="ignore"):
        lse = base + np.log(total)
    return summed / np.where(total == 0, scores.dtype.type(1), total)[..., None], lse


def _merged(first: Array, first_lse: Array, part: Array, lse: Array) -> tuple[Array, Array]:
    """Two means weighted by exp(lse); both may be empty."""
    top = np.maximum(first_lse, lse)
    base = np.where(top == -np.inf, top.dtype.type(0), top)
    one, two = np.exp(first_lse - base), np.exp(lse - base)
    total = one + two
    share = np.where(total == 0, top.dtype.type(1), total)
    with np.errstate(divide="ignore"):
        merged_lse = base + np.log(total)
    return (one / share)[..., None] * first + (two / share)[..., None] * part, merged_lse
