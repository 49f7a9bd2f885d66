"""GroupQueryAttention as a cache: it writes its new keys into a buffer of fixed memory itself."""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np

from equivalence.backends.onnxruntime_gqa_node import group_query, packed
from equivalence.caches.case import CacheCase
from equivalence.declaration import kv_cache as declare
from equivalence.dtypes import Array


class GroupQueryCache:
    """Keys and values ``[B, Hkv, max_len, D]``, each row with a length of its own."""

    def __init__(self, shape: tuple[int, int, int, int], dtype: Any) -> None:
        self.key, self.value = np.zeros(shape, dtype), np.zeros(shape, dtype)
        self.lengths = np.zeros(shape[0], np.int64)

    def append(self, key: Array, value: Array, lengths: Array | None = None) -> None:
        """``[B, Hkv, n, D]``; row b keeps the first ``lengths[b]``. Raises past max_len."""
        added = np.full_like(self.lengths, key.shape[2]) if lengths is None else lengths
        after = self.lengths + added
        if after.max() > self.key.shape[2]:
            raise ValueError(f"{after.max()} tokens exceed max_len={self.key.shape[2]}")
        # A row must hold a token: one that has none yet is given the first, and it is not counted.
        empty = after == 0
        # And it must have room for the whole chunk, however little of it is kept.
        room = self.key.shape[2]
        short = max(0, int(self.lengths.max()) + key.shape[2] - room)
        spare = ((0, 0), (0, 0), (0, short), (0, 0))
        _, self.key, self.value = group_query(
            (key.shape[1],) * 2,
            np.where(empty, 1, after),
            query=packed(key),
            key=packed(key),
            value=packed(value),
            past_key=np.pad(self.key, spare),
            past_value=np.pad(self.value, spare),
            query_seqlens=np.where(empty, 1, added).astype(np.int32),
        )
        self.key, self.value = self.key[:, :, :room], self.value[:, :, :room]
        self.lengths = after

    def attend(self, query: Array) -> Array:
        """``[B, H, q, D]``: all at once for one row, one query after the other for several."""
        q_len = query.shape[2]
        if len(self.lengths) == 1 and self.lengths[0] >= q_len:
            return self._attend(query, self.lengths)
        totals = [np.maximum(self.lengths - q_len + 1 + i, 1) for i in range(q_len)]
        rows = [self._attend(query[:, :, i : i + 1], total) for i, total in enumerate(totals)]
        return np.concatenate(rows, axis=2)

    def _attend(self, query: Array, totals: Array) -> Array:
        nothing = packed(self.key[:, :, :0])  # no new key: those of the cache alone
        output, _, _ = group_query(
            (query.shape[1], self.key.shape[1]), totals, query=packed(query), key=nothing,
            value=nothing, past_key=self.key, past_value=self.value,
        )  # fmt: skip
        return output

    @property
    def positions(self) -> Array:
        """int64 ``[L]``, or ``[B, L]`` with -1 behind the end where rows differ."""
        longest = np.arange(self.lengths.max())
        if (self.lengths == self.lengths[0]).all():
            return longest
        return np.where(longest < self.lengths[:, None], longest, -1)

    @property
    def nbytes(self) -> int:
        """The bytes of the memory, used or not."""
        return self.key.nbytes + self.value.nbytes

    def truncate(self, length: int) -> None:
        """Keep the oldest ``length`` tokens of every row."""
        self.lengths = np.minimum(self.lengths, length)

    def reorder(self, batch_index: Array) -> None:
        """Row b becomes what row ``batch_index[b]`` was."""
        self.key, self.value = self.key[batch_index], self.value[batch_index]
        self.lengths = self.lengths[batch_index]

    def fork(self) -> Self:
        """A copy with memory of its own."""
        return copy.deepcopy(self)


def supports(case: CacheCase) -> bool | str:
    """True, or a limit of the operator that a case goes beyond."""
    return "head_dim must be a multiple of 8" if case.head_dim % 8 else True


@declare(
    arrays="numpy",
    dtypes=("float32", "float16"),
    profile="eager",
    hidden_nan="ignored",
    deterministic=True,
    grouped=True,
    supports=supports,
)
def cache(
    *, batch_size: int, num_kv_heads: int, head_dim: int, max_len: int, dtype: Any
) -> GroupQueryCache:
    """A cache of fixed memory."""
    return GroupQueryCache((batch_size, num_kv_heads, max_len, head_dim), dtype)
