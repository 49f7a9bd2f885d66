"""A ring buffer for a sliding window: a full cache overwrites its oldest tokens."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from equivalence.backends.one_sequence import attend, visible_keys
from equivalence.declaration import kv_cache as declare


class RingCache:
    """Slots ``[B, Hkv, max_len, D]``; token t lies in slot ``t % max_len``.

    seen: how many tokens have come by. kept: how many of the last of them are still there.
    """

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
        self.key = torch.empty(shape, dtype=dtype, device=device)
        self.value = torch.empty(shape, dtype=dtype, device=device)
        self.seen = 0
        self.kept = 0

    def append(self, key: Tensor, value: Tensor) -> None:
        """``[B, Hkv, n, D]``; beyond max_len the oldest are overwritten."""
        count = key.shape[2]
        fresh = min(count, self.max_len)
        slots = torch.arange(self.seen + count - fresh, self.seen + count) % self.max_len
        self.key[:, :, slots] = key[:, :, count - fresh :]
        self.value[:, :, slots] = value[:, :, count - fresh :]
        self.seen += count
        self.kept = min(self.kept + count, self.max_len)

    def attend(self, query: Tensor) -> Tensor:
        """``[B, H, q, D]``, over the slots in use, the oldest first."""
        slots = self.positions % self.max_len
        seen = visible_keys(query.shape[2], self.kept, causal=True, device=query.device)
        return attend(query, self.key[:, :, slots], self.value[:, :, slots], seen)

    @property
    def positions(self) -> Tensor:
        """int64 ``[L]``: the last ``kept`` of all positions."""
        return torch.arange(self.seen - self.kept, self.seen)

    @property
    def nbytes(self) -> int:
        """The bytes of the ring."""
        return self.key.nbytes + self.value.nbytes

    def truncate(self, length: int) -> None:
        """Forget the newest tokens, until ``length`` are left; evicted ones do not come back."""
        dropped = max(0, self.kept - length)
        self.seen -= dropped
        self.kept -= dropped

    def reorder(self, batch_index: Tensor) -> None:
        """Row b becomes what row ``batch_index[b]`` was."""
        self.key, self.value = self.key[batch_index], self.value[batch_index]

    def fork(self) -> Self:
        """A copy with a ring of its own."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        copy.key, copy.value = self.key.clone(), self.value.clone()
        return copy


@declare(
    dtypes=("float64", "float32", "float16", "bfloat16"),
    profile="f32",
    hidden_nan="ignored",
    evicts="oldest",
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
) -> RingCache:
    """A sliding window of ``max_len`` tokens."""
    return RingCache(
        batch_size=batch_size,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        max_len=max_len,
        dtype=dtype,
        device=device,
    )
