"""The memory of a paged cache: pages that are taken one at a time, and counted by their users."""

from __future__ import annotations

import torch

PAGE_SIZE = 4


class Pool:
    """Pages ``[P, page_size, Hkv, D]`` and how many tables use each of them."""

    def __init__(self, pages: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype) -> None:
        shape = (pages, PAGE_SIZE, num_kv_heads, head_dim)
        self.key = torch.empty(shape, dtype=dtype)
        self.value = torch.empty(shape, dtype=dtype)
        self.users = [0] * pages

    def take(self) -> int:
        """A free page, the last one first; the pool grows where there is none."""
        free = [page for page, users in enumerate(self.users) if not users]
        if not free:
            free = [len(self.users)]
            self.key = torch.cat([self.key, torch.empty_like(self.key[:1])])
            self.value = torch.cat([self.value, torch.empty_like(self.value[:1])])
            self.users.append(0)
        self.users[free[-1]] = 1
        return free[-1]

    def own(self, page: int) -> int:
        """``page``, or a copy of it where somebody else uses it too."""
        if self.users[page] == 1:
            return page
        copy = self.take()
        self.key[copy], self.value[copy] = self.key[page], self.value[page]
        self.users[page] -= 1
        return copy
