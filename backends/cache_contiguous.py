"""The plainest cache: append by concatenation, keep one tensor for keys and one for values."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from equivalence.backends.one_sequence import attend, visible_keys
from equivalence.declaration import kv_cache as declare


class ContiguousCache:
    """Keys and values ``[B, Hkv, L, D]``, grown by ``torch.cat``."""

    def __init__(
        self,
        *,
        batch_size: int,
        num_kv_heads: int,
        head_dim: int,
        max_len: int,
        dtype: torch.dtype,
        device: str,
    ) -> None:
        shape = (batch_size, num_kv_heads, 0, head_dim)
        self.max_len = max_len
        self.key = torch.empty(shape, dtype=dtype, device=device)
        self.value = torch.empty(shape, dtype=dtype, device=device)

    def append(self, key: Tensor, value: Tensor) -> None:
        """``[B, Hkv, n, D]``, the oldest first. Raises ValueError past max_len."""
        length = self.key.shape[2] + key.shape[2]
        if length > self.max_len:
            raise ValueError(f"{length} tokens exceed max_len={self.max_len}")
        self.key = torch.cat([self.key, key], dim=2)
        self.value = torch.cat([self.value, value], dim=2)

    def attend(self, query: Tensor) -> Tensor:
        """``[B, H, q, D]``, the last query standing on the last token."""
        seen = visible_keys(query.shape[2], self.key.shape[2], causal=True, device=query.device)
        return attend(query, self.key, self.value, seen)

    @property
    def positions(self) -> Tensor:
        """int64 ``[L]``."""
        return torch.arange(self.key.shape[2])

    @property
    def nbytes(self) -> int:
        """The bytes of both tensors."""
        return self.key.nbytes + self.value.nbytes

    def truncate(self, length: int) -> None:
        """Keep the oldest ``length`` tokens."""
        self.key, self.value = self.key[:, :, :length], self.value[:, :, :length]

    def reorder(self, batch_index: Tensor) -> None:
        """Row b becomes what row ``batch_index[b]`` was."""
        self.key = self.key.index_select(0, batch_index)
        self.value = self.value.index_select(0, batch_index)

    def fork(self) -> Self:
        """A copy; the tensors are shared until either side appends, and never written to."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        return copy


@declare(
    dtypes=("float64", "float32", "float16", "bfloat16"),
    profile="f32",
    hidden_nan="ignored",
    deterministic=True,
    grouped=True,
)
def cache(
    *,
    batch_size: int,
    num_kv_heads: int,
    head_dim: int,
    max_len: int,
    dtype: torch.dtype,
    device: str,
) -> ContiguousCache:
    """A cache that grows by concatenation."""
    return ContiguousCache(
        batch_size=batch_size,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        max_len=max_len,
        dtype=dtype,
        device=device,
    )
