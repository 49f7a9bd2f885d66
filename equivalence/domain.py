"""The set of cases that make sense for a target, a law or a user: what strategies draw from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from equivalence.case import MEMORIES, VALUES
from equivalence.dtypes import DTYPES
from equivalence.masks import AXES, FORMS

FUZZ_HEAD_DIMS: Final = tuple(range(1, 34))
REAL_HEAD_DIMS: Final = (64, 80, 96, 128, 256)


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """Ranges and choices, each ordered from the simplest. A strategy never leaves them.

    Ranges are inclusive pairs. ``causal`` lists the values of ``AttentionCase.causal``;
    ``masks`` the mask forms, ``mask_axes`` their broadcast shapes; ``windows`` the kinds of
    window ("int", "pair"); ``head_layouts`` pins (num_kv_heads, group_size, head_dim) triples, as
    ``--like`` does. ``long_context`` allows kv_len up to 4,096 now and then. ``kv_lens`` and
    ``q_lens`` name the only lengths that a target takes; ``square``: only q_len == kv_len;
    ``longer_queries``: q_len > kv_len too.
    """

    dtypes: tuple[str, ...] = DTYPES
    head_orders: tuple[str | tuple[int, ...], ...] = ("grouped",)
    batch_size: tuple[int, int] = (1, 4)
    num_kv_heads: tuple[int, int] = (1, 4)
    group_size: tuple[int, int] = (1, 5)
    q_len: tuple[int, int] = (1, 12)
    kv_len: tuple[int, int] = (1, 64)
    kv_lens: tuple[int, ...] | None = None
    q_lens: tuple[int, ...] | None = None
    head_dims: tuple[int, ...] | None = None
    value_head_dim_differs: bool = True
    causal: tuple[str | None, ...] = (None, "lower_right")
    masks: tuple[str, ...] = FORMS
    mask_axes: tuple[str, ...] = AXES
    mask_and_causal: bool = False
    windows: tuple[str, ...] = ()
    window_needs_causal: bool = False
    longer_queries: bool = True
    square: bool = False
    scale: bool = True
    softcap: bool = False
    sinks: bool = False
    alibi: bool = False
    kv_lengths: bool = False
    values: tuple[str, ...] = VALUES
    memories: tuple[str, ...] = MEMORIES
    empty_rows: bool = True
    head_layouts: tuple[tuple[int, int, int], ...] | None = None
    real_models: bool = True
    long_context: bool = False

    def but(self, **changes: Any) -> Domain:
        """The same domain with some limits changed."""
        return replace(self, **changes)
