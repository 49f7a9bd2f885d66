"""Hugging Face transformers' caches as clients: dynamic, static and sliding."""

from __future__ import annotations

from typing import Any

import torch

from equivalence.backends.transformers_cache_layers import DynamicLayer, LayerOf, SlidingLayer
from equivalence.declaration import kv_cache as declare

DTYPES = ("float64", "float32", "float16", "bfloat16")


def _config(num_kv_heads: int, head_dim: int, window: int | None) -> Any:
    from transformers import PretrainedConfig

    config: Any = PretrainedConfig()
    config.num_hidden_layers = 1
    config.num_attention_heads = config.num_key_value_heads = num_kv_heads
    config.head_dim = head_dim
    config.layer_types = ["full_attention" if window is None else "sliding_attention"]
    config.sliding_window = window
    return config


@declare(dtypes=DTYPES, profile="f32", hidden_nan="ignored", grouped=True)
def dynamic(
    *, batch_size: int, num_kv_heads: int, head_dim: int, max_len: int, dtype: torch.dtype
) -> DynamicLayer:
    """``DynamicCache``, which grows by concatenation."""
    from transformers import DynamicCache

    shape = (batch_size, num_kv_heads, head_dim)
    return DynamicLayer(DynamicCache(), max_len, shape, dtype=dtype)


@declare(dtypes=DTYPES, profile="f32", hidden_nan="ignored", grouped=True)
def static(
    *, batch_size: int, num_kv_heads: int, head_dim: int, max_len: int, dtype: torch.dtype
) -> LayerOf:
    """``StaticCache`` of fixed memory."""
    from transformers import StaticCache

    cache = StaticCache(config=_config(num_kv_heads, head_dim, None), max_cache_len=max_len)
    return LayerOf(cache, max_len, (batch_size, num_kv_heads, head_dim), dtype=dtype)


@declare(dtypes=DTYPES, profile="f32", hidden_nan="ignored", evicts="oldest", grouped=True)
def sliding(
    *, batch_size: int, num_kv_heads: int, head_dim: int, max_len: int, dtype: torch.dtype
) -> SlidingLayer:
    """``DynamicCache`` for a model with a sliding window of ``max_len`` tokens."""
    from transformers import DynamicCache

    cache = DynamicCache(config=_config(num_kv_heads, head_dim, max_len))
    return SlidingLayer(cache, max_len, (batch_size, num_kv_heads, head_dim), dtype=dtype)
