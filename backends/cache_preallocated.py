"""A cache of fixed memory and a position for each batch row; rows may have unequal lengths."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from equivalence.backends.one_sequence import attend
from equivalence.declaration import kv_cache as declare


class PreallocatedCache:
    """Keys and values ``[B, Hkv, max_len, D]``, written in place at each row's position."""

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
        shape = (batch_size, num_kv_heads, max_len, head_dim)
        self.max_len = max_len
        self.key = torch.zeros(shape, dtype=dtype, device=device)
        self.value = torch.zeros(shape, dtype=dtype, device=device)
        self.lengths = torch.zeros(batch_size, dtype=torch.int64, device=device)

    def append(self, key: Tensor, value: Tensor, lengths: Tensor | None = None) -> None:
        """``[B, Hkv, n, D]``; row b keeps the first ``lengths[b]``. Raises past max_len."""
        count = key.shape[2]
        added = torch.full_like(self.lengths, count) if lengths is None else lengths
        after = self.lengths + added
        if int(after.max()) > self.max_len:
            raise ValueError(f"{int(after.max())} tokens exceed max_len={self.max_len}")
        column = torch.arange(count, device=key.device)
        row, token = torch.nonzero(column < added.view(-1, 1), as_tuple=True)
        slot = self.lengths[row] + token
        self.key[row, :, slot] = key[row, :, token]
        self.value[row, :, slot] = value[row, :, token]
        self.lengths = after

    def attend(self, query: Tensor) -> Tensor:
        """``[B, H, q, D]``, each row's last query standing on its last token."""
        longest = int(self.lengths.max())
        position = torch.arange(longest, device=query.device)
        shift = self.lengths.view(-1, 1, 1) - query.shape[2]
        own = torch.arange(query.shape[2], device=query.device).view(1, -1, 1) + shift
        used = (position < self.lengths.view(-1, 1))[:, None, :, None]
        key = self.key[:, :, :longest].masked_fill(~used, 0.0)
        value = self.value[:, :, :longest].masked_fill(~used, 0.0)
        seen = (position <= own) & (position < self.lengths.view(-1, 1, 1))
        return attend(query, key, value, seen[:, None, None])

    @property
    def positions(self) -> Tensor:
        """int64 ``[L]``, or ``[B, L]`` with -1 behind the end where rows differ."""
        longest = torch.arange(int(self.lengths.max()))
        if bool((self.lengths == self.lengths[0]).all()):
            return longest
        return longest.masked_fill(longest >= self.lengths.cpu().view(-1, 1), -1)

    @property
    def nbytes(self) -> int:
        """The bytes of the memory, used or not."""
        return self.key.nbytes + self.value.nbytes

    def truncate(self, length: int) -> None:
        """Keep the oldest ``length`` tokens of every row."""
        self.lengths = self.lengths.clamp(max=length)

    def reorder(self, batch_index: Tensor) -> None:
        """Row b becomes what row ``batch_index[b]`` was."""
        self.key, self.value = self.key[batch_index], self.value[batch_index]
        self.lengths = self.lengths[batch_index]

    def fork(self) -> Self:
        """A copy with memory of its own."""
        copy = object.__new__(type(self))
        copy.max_len = self.max_len
        copy.key, copy.value = self.key.clone(), self.value.clone()
        copy.lengths = self.lengths.clone()
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
) -> PreallocatedCache:
    """A cache of fixed memory."""
    return PreallocatedCache(
        batch_size=batch_size,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        max_len=max_len,
        dtype=dtype,
        device=device,
    )
