"""The set of rotary cases that make sense for a target: what the strategy draws from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from equivalence.declaration import PAIRINGS
from equivalence.dtypes import DTYPES
from equivalence.rope.case import MEMORIES, VALUES
from equivalence.rope.scaling import ROPE_TYPES

FUZZ_HEAD_DIMS: Final = (*range(2, 17), 24, 32, 33, 64, 80, 96, 128, 256)
FURTHEST: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RotaryDomain:
    """Ranges and choices, each ordered from the simplest. A strategy never leaves them.

    Ranges are inclusive pairs. partial: whether rotary_dim may be below head_dim. scalings: the
    types of scaling that are taken. flat, by_row: which ranks of positions are taken.
    most_heads, most_tokens: how far the few cases go that are asked for on purpose.
    head_layouts: pins head_dim to those of (num_kv_heads, group_size, head_dim) triples, as
    ``--like`` does. long_context changes nothing: every run draws positions up to ``furthest``.
    """

    dtypes: tuple[str, ...] = DTYPES
    pairings: tuple[str, ...] = PAIRINGS
    batch_size: tuple[int, int] = (1, 3)
    num_heads: tuple[int, int] = (1, 4)
    seq_len: tuple[int, int] = (1, 12)
    most_heads: int = 33
    most_tokens: int = 300
    head_dims: tuple[int, ...] = FUZZ_HEAD_DIMS
    partial: bool = True
    theta: bool = True
    scalings: tuple[str, ...] = ROPE_TYPES
    attention_factor: bool = True
    flat: bool = True
    by_row: bool = True
    furthest: int = FURTHEST
    values: tuple[str, ...] = VALUES
    memories: tuple[str, ...] = MEMORIES
    real_models: bool = True
    head_layouts: tuple[tuple[int, int, int], ...] | None = None
    long_context: bool = False

    def but(self, **changes: Any) -> RotaryDomain:
        """The same domain with some limits changed."""
        return replace(self, **changes)
