"""The set of packed and paged cases that make sense for a target."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from equivalence.case import VALUES
from equivalence.dtypes import DTYPES
from equivalence.packed.case import MEMORIES, ORDERS


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedDomain:
    """Ranges (inclusive) and choices, each ordered from the simplest.

    sequences: how many. empty_queries, empty_keys: a sequence may have none. longer_queries:
    more queries than keys. spare_tokens: rows behind the last sequence. page_sizes and orders
    belong to paged cases alone.
    """

    dtypes: tuple[str, ...] = DTYPES
    sequences: tuple[int, int] = (1, 4)
    many_sequences: bool = True
    num_kv_heads: tuple[int, int] = (1, 4)
    group_size: tuple[int, int] = (1, 5)
    q_len: tuple[int, int] = (1, 9)
    q_lens: tuple[int, ...] | None = None
    kv_len: tuple[int, int] = (1, 64)
    empty_queries: bool = True
    empty_keys: bool = True
    longer_queries: bool = True
    head_dims: tuple[int, ...] | None = None
    value_head_dim_differs: bool = True
    causal: tuple[str | None, ...] = (None, "lower_right")
    windows: tuple[str, ...] = ()
    scale: bool = True
    softcap: bool = False
    longer_max: bool = False
    spare_tokens: bool = False
    page_sizes: tuple[int, ...] = (1, 2, 3, 4, 8, 16)
    orders: tuple[str, ...] = ORDERS
    values: tuple[str, ...] = VALUES
    memories: tuple[str, ...] = MEMORIES
    head_layouts: tuple[tuple[int, int, int], ...] | None = None
    real_models: bool = True
    long_context: bool = False

    def but(self, **changes: Any) -> PackedDomain:
        """The same domain with some limits changed."""
        return replace(self, **changes)
