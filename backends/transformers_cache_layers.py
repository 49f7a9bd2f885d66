"""One layer of a cache of transformers, with the attention that its keys and values are for."""

from __future__ import annotations

import copy
from typing import Any, Self

import torch
from torch import Tensor

from equivalence.backends.one_sequence import attend, visible_keys


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
