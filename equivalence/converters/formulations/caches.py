"""One decode step with a key/value cache: states that are written in three ways, or an input."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn


class CacheModule(nn.Module):
    """query ``[B, H, 1, D]``, key and value ``[B, Hkv, 1, D]``, position int32 ``[1]``.

    ``states`` names the buffers that a converter must keep between calls. Each call writes its
    token at ``position`` and attends to every token up to there.
    """

    states: tuple[str, ...] = ("key_cache", "value_cache")

    def __init__(
        self,
        *,
        batch_size: int,
        num_kv_heads: int,
        head_dim: int,
        max_len: int,
        scale: float | None = None,
    ) -> None:
        super().__init__()
        shape = (batch_size, num_kv_heads, max_len, head_dim)
        self.max_len: Final = max_len
        self.scale: Final = scale
        for name in self.states:
            self.register_buffer(name, torch.zeros(shape))
        self.key_cache: Tensor
        self.value_cache: Tensor

    def write(self, cache: Tensor, token: Tensor, position: Tensor) -> None:
        """Put ``token`` at ``position`` of ``cache``, in place."""
        raise NotImplementedError

    def hit(self, token: Tensor, position: Tensor) -> Tensor:
        """1 at ``position`` and 0 elsewhere, ``[1, 1, max_len, 1]``."""
        place = torch.arange(self.max_len, device=token.device)
        return (place == position).to(token.dtype).view(1, 1, self.max_len, 1)

    def attended(self, query: Tensor, keys: Tensor, values: Tensor, position: Tensor) -> Tensor:
        """Folded attention over the whole cache, with what lies behind ``position`` hidden."""
        batch, heads, _, width = query.shape
        kv_heads = keys.shape[1]
        folded = query.reshape(batch, kv_heads, heads // kv_heads, width)
        scores = folded @ keys.transpose(2, 3)
        scores = scores * (width**-0.5 if self.scale is None else self.scale)
        behind = torch.arange(self.max_len, device=query.device) > position
        weights = torch.softmax(scores.masked_fill(behind, -torch.inf), -1)
        return (weights @ values).reshape(batch, heads, 1, width)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, position: Tensor) -> Tensor:
        self.write(self.key_cache, key, position)
        self.write(self.value_cache, value, position)
        return self.attended(query, self.key_cache, self.value_cache, position)


class SliceWrite(CacheModule):
    """``cache[:, :, position : position + 1] = token``."""

    def write(self, cache: Tensor, token: Tensor, position: Tensor) -> None:
        cache[:, :, position : position + 1] = token


class IndexedWrite(CacheModule):
    """``cache[:, :, position] = token``."""

    def write(self, cache: Tensor, token: Tensor, position: Tensor) -> None:
        cache[:, :, position] = token


class OneHotWrite(CacheModule):
    """The whole cache is rewritten: what it was, except at one position."""

    def write(self, cache: Tensor, token: Tensor, position: Tensor) -> None:
        hit = self.hit(token, position)
        cache[:] = cache * (1 - hit) + hit * token


class ReadOnly(CacheModule):
    """The cache is an input that the caller keeps: the graph has no state to write.

    key_cache, value_cache ``[B, Hkv, max_len, D]``, with the new token already in its place.
    """

    states: tuple[str, ...] = ()

    def forward(
        self, query: Tensor, key_cache: Tensor, value_cache: Tensor, position: Tensor
    ) -> Tensor:
        return self.attended(query, key_cache, value_cache, position)
