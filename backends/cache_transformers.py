"""Hugging Face transformers' caches as clients: dynamic, static and sliding."""

from __future__ import annotations

import copy
from typing import Any, Self

import torch
from torch import Tensor

from equivalence.backends.one_sequence import attend, visible_keys
from equivalence.declaration import kv_cache as declare


class LayerOf:
    """One layer of a transformers ``Cache``, with attention spelled out over what it returns.

    Its ``update`` writes and hands back keys and values; those are kept for :meth:`attend`.
    """

    def __init__(self, cache: Any, max_len: int, shape: tuple[int, int, int], **about: Any) -> None:
        batch_size, num_kv_heads, head_dim = shape
        self.cache, self.max_len, self.length = cache, max_len, 0
        self.key = torch.empty((batch_size, num_kv_heads, 0, head_dim), **about)
        self.value = self.key

    def append(self, key: Tensor, value: Tensor) -> None:
        """``[B, Hkv, n, D]``. Raises ValueError past max_len, which transformers leaves open."""
        length = self.length + key.shape[2]
        if length > self.max_len:
            raise ValueError(f"{length} tokens exceed max_len={self.max_len}")
        place = torch.arange(self.length, length)
        self.key, self.value = self.cache.update(key, value, 0, {"cache_position": place})
        self.length = length

    def attend(self, query: Tensor) -> Tensor:
        """``[B, H, q, D]`` over the tokens in use."""
        seen = visible_keys(query.shape[2], self.length, causal=True)
        return attend(query, self.key[:, :, : self.length], self.value[:, :, : self.length], seen)

    @property
    def positions(self) -> Tensor:
        """int64 ``[L]``."""
        return torch.arange(self.length)


class DynamicLayer(LayerOf):
    """``DynamicCache``: it can also be cropped, reordered and copied."""

    @property
    def nbytes(self) -> int:
        """The bytes of the layer's tensors."""
        return self.key.nbytes + self.value.nbytes

    def truncate(self, length: int) -> None:
        """``crop``, which counts the tokens to forget, as a negative number."""
        dropped = max(0, self.length - length)
        if dropped:
            self.cache.crop(-dropped)
        self.length -= dropped
        self._look()

    def reorder(self, batch_index: Tensor) -> None:
        """``reorder_cache``, as beam search does it."""
        if self.cache.layers:
            self.cache.reorder_cache(batch_index)
        self._look()

    def fork(self) -> Self:
        """A deep copy."""
        return copy.deepcopy(self)

    def _look(self) -> None:
        if self.cache.layers and self.cache.layers[0].keys is not None:
            self.key, self.value = self.cache.layers[0].keys, self.cache.layers[0].values


class SlidingLayer(DynamicLayer):
    """A sliding layer: ``update`` returns the window before the chunk and the chunk itself."""

    def append(self, key: Tensor, value: Tensor) -> None:
        """``[B, Hkv, n, D]``; beyond the window the oldest are forgotten."""
        self.length += key.shape[2]
        key, value = self.cache.update(key, value, 0, {})
        self.key, self.value = key[:, :, -self.max_len :], value[:, :, -self.max_len :]

    def attend(self, query: Tensor) -> Tensor:
        """``[B, H, q, D]`` over the window."""
        seen = visible_keys(query.shape[2], self.key.shape[2], causal=True)
        return attend(query, self.key, self.value, seen)

    @property
    def positions(self) -> Tensor:
        """int64 ``[L]``."""
        return torch.arange(self.length - self.key.shape[2], self.length)

    truncate = reorder = None  # type: ignore[assignment]


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
