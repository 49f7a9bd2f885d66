"""The cache of latent attention: one latent and one rotary key a token, whatever the heads.

Keys are entries of both, values their first ``latent_dim`` columns (DeepSeek-V2, section 2.1).
"""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from equivalence.backends.one_sequence import attend, visible_keys
from equivalence.declaration import kv_cache as declare


class LatentCache:
    """Entries ``[B, max_len, dc + dR]`` in memory of fixed size, and how many tokens are used."""

    def __init__(
        self,
        *,
        batch_size: int,
        head_dim: int,
        latent_dim: int,
        rope_dim: int,
        max_len: int,
        dtype: torch.dtype,
        device: str,
    ) -> None:
        self.latent_dim, self.max_len = latent_dim, max_len
        self.scale = (head_dim + rope_dim) ** -0.5  # of the heads, which never were so wide
        shape = (batch_size, max_len, latent_dim + rope_dim)
        self.entries = torch.empty(shape, dtype=dtype, device=device)
        self.length = 0

    def append(self, latent: Tensor, key_rotary: Tensor) -> None:
        """``[B, n, dc]`` and ``[B, n, dR]``, the oldest first. Raises ValueError past max_len."""
        end = self.length + latent.shape[1]
        if end > self.max_len:
            raise ValueError(f"{end} tokens exceed max_len={self.max_len}")
        self.entries[:, self.length : end] = torch.cat([latent, key_rotary], dim=-1)
        self.length = end

    def attend(self, query: Tensor) -> Tensor:
        """``[B, H, q, dc + dR]`` -> ``[B, H, q, dc]``, the last query on the last token."""
        key = self.entries[:, None, : self.length]
        seen = visible_keys(query.shape[2], self.length, causal=True, device=query.device)
        return attend(query, key, key[..., : self.latent_dim], seen, self.scale)

    @property
    def positions(self) -> Tensor:
        """int64 ``[L]``."""
        return torch.arange(self.length)

    @property
    def nbytes(self) -> int:
        """The bytes of the memory, used or not."""
        return self.entries.nbytes

    def truncate(self, length: int) -> None:
        """Keep the oldest ``length`` tokens."""
        self.length = min(self.length, length)

    def reorder(self, batch_index: Tensor) -> None:
        """Row b becomes what row ``batch_index[b]`` was."""
        self.entries = self.entries.index_select(0, batch_index)

    def fork(self) -> Self:
        """A copy with memory of its own."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        copy.entries = self.entries.clone()
        return copy


@declare(
    dtypes=("float64", "float32", "float16", "bfloat16"),
    profile="f32",
    hidden_nan="ignored",
    deterministic=True,
    latent=True,
)
def cache(
    *,
    batch_size: int,
    head_dim: int,
    latent_dim: int,
    rope_dim: int,
    max_len: int,
    dtype: torch.dtype,
    device: str,
) -> LatentCache:
    """A cache of latents of fixed memory."""
    return LatentCache(
        batch_size=batch_size,
        head_dim=head_dim,
        latent_dim=latent_dim,
        rope_dim=rope_dim,
        max_len=max_len,
        dtype=dtype,
        device=device,
    )
