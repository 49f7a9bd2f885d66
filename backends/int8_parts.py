"""Keys and values as 8-bit numbers with their steps, and a cache that is made of them."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from equivalence.backends.one_sequence import attend, visible_keys

LEVELS = 127
BLOCK = 4
Part = tuple[Tensor, Tensor]


def quantised(x: Tensor, axis: int) -> Part:
    """int8 numbers and steps in float32; along ``axis`` a step is shared."""
    wide = x.to(torch.float32)
    step = wide.abs().amax(dim=axis, keepdim=True) / LEVELS
    whole = torch.round(wide / step.where(step > 0, torch.ones_like(step)))
    return whole.clamp(-LEVELS, LEVELS).to(torch.int8), step


def restored(parts: list[Part], dtype: torch.dtype) -> Tensor:
    """The numbers of all parts, one after the other along the tokens."""
    return torch.cat([(whole * step).to(dtype) for whole, step in parts], dim=2)


class Int8Cache:
    """Parts ``[B, Hkv, n, D]`` of int8 with their steps, and a tail not yet quantised.

    per_channel: keys get a step for each channel of a block of 4 tokens (as in KIVI, Liu et al.
    2024), which they wait for in full precision; otherwise each token and head has one.
    """

    def __init__(
        self,
        *,
        batch_size: int,
        num_kv_heads: int,
        head_dim: int,
        max_len: int,
        dtype: torch.dtype,
        per_channel: bool,
    ) -> None:
        empty = torch.empty((batch_size, num_kv_heads, 0, head_dim), dtype=dtype)
        self.max_len, self.per_channel = max_len, per_channel
        self.keys: list[Part] = []
        self.values: list[Part] = []
        self.tail_key = self.tail_value = empty

    @property
    def length(self) -> int:
        """How many tokens are kept."""
        done: int = sum(whole.shape[2] for whole, _ in self.keys)
        return done + self.tail_key.shape[2]

    def append(self, key: Tensor, value: Tensor) -> None:
        """``[B, Hkv, n, D]``. Raises ValueError past max_len."""
        if self.length + key.shape[2] > self.max_len:
            raise ValueError(f"{self.length + key.shape[2]} tokens exceed {self.max_len}")
        self.tail_key = torch.cat([self.tail_key, key], dim=2)
        self.tail_value = torch.cat([self.tail_value, value], dim=2)
        block = BLOCK if self.per_channel else 1
        axis = 2 if self.per_channel else 3
        while self.tail_key.shape[2] >= block:
            head_key, head_value = self.tail_key[:, :, :block], self.tail_value[:, :, :block]
            self.keys.append(quantised(head_key, axis))
            self.values.append(quantised(head_value, 3))
            self.tail_key = self.tail_key[:, :, block:]
            self.tail_value = self.tail_value[:, :, block:]

    def attend(self, query: Tensor) -> Tensor:
        """``[B, H, q, D]`` over the restored numbers."""
        ones = torch.ones(1)
        key = restored([*self.keys, (self.tail_key, ones.to(self.tail_key))], query.dtype)
        value = restored([*self.values, (self.tail_value, ones.to(self.tail_value))], query.dtype)
        seen = visible_keys(query.shape[2], self.length, causal=True)
        return attend(query, key, value, seen)

    @property
    def positions(self) -> Tensor:
        """int64 ``[L]``."""
        return torch.arange(self.length)

    @property
    def nbytes(self) -> int:
        """The bytes of numbers, steps and tail."""
        parts = [tensor for part in (*self.keys, *self.values) for tensor in part]
        return sum(t.nbytes for t in (*parts, self.tail_key, self.tail_value))

    def truncate(self, length: int) -> None:
        """Keep the oldest ``length`` tokens; a block that is cut keeps its steps."""
        kept = 0
        for parts in (self.keys, self.values):
            kept = 0
            for i, (whole, step) in enumerate(parts):
                count = max(0, min(whole.shape[2], length - kept))
                shared = step.shape[2] == 1 < whole.shape[2]
                parts[i] = (whole[:, :, :count], step if shared else step[:, :, :count])
                kept += count
            parts[:] = [part for part in parts if part[0].shape[2]]
        tail = max(0, length - kept)
        self.tail_key, self.tail_value = self.tail_key[:, :, :tail], self.tail_value[:, :, :tail]

    def reorder(self, batch_index: Tensor) -> None:
        """Row b becomes what row ``batch_index[b]`` was."""
        for parts in (self.keys, self.values):
            parts[:] = [(whole[batch_index], step[batch_index]) for whole, step in parts]
        self.tail_key, self.tail_value = self.tail_key[batch_index], self.tail_value[batch_index]

    def fork(self) -> Self:
        """A copy; tensors are shared and never written to."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        copy.keys, copy.values = list(self.keys), list(self.values)
        return copy
