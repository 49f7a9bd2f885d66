"""Caches of 8-bit numbers: a step for every token and head, or for every channel of a block."""

from __future__ import annotations

import torch

from equivalence.backends.int8_parts import Int8Cache
from equivalence.declaration import kv_cache as declare


@declare(
    dtypes=("float32", "float16", "bfloat16"),
    profile="f32",
    hidden_nan="ignored",
    quantised="int8",
    deterministic=True,
    grouped=True,
)
def per_head(
    *, batch_size: int, num_kv_heads: int, head_dim: int, max_len: int, dtype: torch.dtype
) -> Int8Cache:
    """A step for each token and head."""
    return Int8Cache(
        batch_size=batch_size,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        max_len=max_len,
        dtype=dtype,
        per_channel=False,
    )


@declare(
    dtypes=("float32", "float16", "bfloat16"),
    profile="f32",
    hidden_nan="leaks",  # a truncated token may have set the steps of its block
    quantised="int8",
    deterministic=True,
    grouped=True,
)
def per_channel(
    *, batch_size: int, num_kv_heads: int, head_dim: int, max_len: int, dtype: torch.dtype
) -> Int8Cache:
    """A step for each channel of a block of keys, and for each token and head of values."""
    return Int8Cache(
        batch_size=batch_size,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        max_len=max_len,
        dtype=dtype,
        per_channel=True,
    )
