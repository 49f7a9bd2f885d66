"""The set of cache programs that make sense for a target."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from equivalence.caches.program import WORDS
from equivalence.case import VALUES
from equivalence.dtypes import DTYPES


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheDomain:
    """Ranges (inclusive) and choices, each ordered from the simplest.

    many_rows: now and then up to 16. max_lens: the only capacities that are taken.
    words: the operations that the cache has. ragged: ``append(..., lengths=)``. chunks: several
    tokens in one append; several_queries: in one attend. operations: how many are drawn at most.
    latents: the (latent_dim, rope_dim) of a cache of latents, None for one of keys and values.
    """

    dtypes: tuple[str, ...] = DTYPES
    batch_size: tuple[int, int] = (1, 3)
    many_rows: bool = True
    num_kv_heads: tuple[int, int] = (1, 3)
    group_size: tuple[int, int] = (1, 4)
    head_dims: tuple[int, ...] | None = None
    max_len: tuple[int, int] = (1, 64)
    max_lens: tuple[int, ...] | None = None
    evicts: bool = False
    words: tuple[str, ...] = WORDS
    ragged: bool = True
    chunks: bool = True
    several_queries: bool = True
    latents: tuple[tuple[int, int], ...] | None = None
    operations: int = 12
    values: tuple[str, ...] = VALUES
    magnitudes: tuple[float, ...] = (1.0, 0.1, 3.0, 10.0)
    head_layouts: tuple[tuple[int, int, int], ...] | None = None
    real_models: bool = True
    long_context: bool = False

    def but(self, **changes: Any) -> CacheDomain:
        """The same domain with some limits changed."""
        return replace(self, **changes)
