"""A paged cache: pages handed out one at a time, shared by forks, copied when written to."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from equivalence.backends.page_pool import PAGE_SIZE, Pool
from equivalence.backends.paged_torch import gathered
from equivalence.declaration import kv_cache as declare


class PagedCache:
    """A page table and a length for each batch row, over a pool that forks share."""

    def __init__(
        self,
        *,
        batch_size: int,
        num_kv_heads: int,
        head_dim: int,
        max_len: int,
        dtype: torch.dtype,
    ) -> None:
        self.max_len = max_len
        self.pool = Pool(batch_size * -(-max_len // PAGE_SIZE), num_kv_heads, head_dim, dtype)
        self.tables: list[list[int]] = [[] for _ in range(batch_size)]
        self.lengths = [0] * batch_size

    def append(self, key: Tensor, value: Tensor, lengths: Tensor | None = None) -> None:
        """``[B, Hkv, n, D]``; row b keeps the first ``lengths[b]``. Raises past max_len."""
        count = key.shape[2]
        added = [count] * len(self.tables) if lengths is None else lengths.tolist()
        longest = max(a + b for a, b in zip(self.lengths, added, strict=True))
        if longest > self.max_len:
            raise ValueError(f"{longest} tokens exceed max_len={self.max_len}")
        for row, table in enumerate(self.tables):
            for token in range(added[row]):
                column, slot = divmod(self.lengths[row] + token, PAGE_SIZE)
                if column == len(table):
                    table.append(self.pool.take())
                table[column] = self.pool.own(table[column])
                self.pool.key[table[column], slot] = key[row, :, token]
                self.pool.value[table[column], slot] = value[row, :, token]
            self.lengths[row] += added[row]

    def attend(self, query: Tensor) -> Tensor:
        """``[B, H, q, D]``, each row's last query standing on its last token."""
        widest = max(len(table) for table in self.tables)
        table = torch.tensor([row + [0] * (widest - len(row)) for row in self.tables])
        return gathered(
            query,
            self.pool.key,
            self.pool.value,
            page_table=table.to(torch.int32),
            kv_lengths=torch.tensor(self.lengths, dtype=torch.int32),
            causal=True,
        )

    @property
    def positions(self) -> Tensor:
        """int64 ``[L]``, or ``[B, L]`` with -1 behind the end where rows differ."""
        longest = torch.arange(max(self.lengths))
        if len(set(self.lengths)) == 1:
            return longest
        return longest.masked_fill(longest >= torch.tensor(self.lengths).view(-1, 1), -1)

    @property
    def nbytes(self) -> int:
        """The bytes of the pages in use; a shared page counts once for each row."""
        one = self.pool.key[:1].nbytes + self.pool.value[:1].nbytes
        return one * sum(len(table) for table in self.tables)

    def truncate(self, length: int) -> None:
        """Keep the oldest ``length`` tokens of every row, and give whole pages back."""
        self.lengths = [min(kept, length) for kept in self.lengths]
        for row, table in enumerate(self.tables):
            while len(table) > -(-self.lengths[row] // PAGE_SIZE):
                self.pool.users[table.pop()] -= 1

    def reorder(self, batch_index: Tensor) -> None:
        """Row b becomes what row ``batch_index[b]`` was; pages are shared, not copied."""
        rows = batch_index.tolist()
        tables = [list(self.tables[i]) for i in rows]
        self._use(tables, 1)
        self._use(self.tables, -1)
        self.tables, self.lengths = tables, [self.lengths[i] for i in rows]

    def fork(self) -> Self:
        """A copy of the tables over the same pool."""
        copy = object.__new__(type(self))
        copy.max_len, copy.pool = self.max_len, self.pool
        copy.tables = [list(table) for table in self.tables]
        copy.lengths = list(self.lengths)
        self._use(copy.tables, 1)
        return copy

    def _use(self, tables: list[list[int]], change: int) -> None:
        for table in tables:
            for page in table:
                self.pool.users[page] += change


@declare(
    dtypes=("float64", "float32", "float16", "bfloat16"),
    profile="f32",
    hidden_nan="ignored",
    deterministic=True,
    grouped=True,
)
def cache(
    *, batch_size: int, num_kv_heads: int, head_dim: int, max_len: int, dtype: torch.dtype
) -> PagedCache:
    """A paged cache with pages of 4 tokens."""
    return PagedCache(
        batch_size=batch_size,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        max_len=max_len,
        dtype=dtype,
    )
