"""What is asked of a kernel for packed or paged sequences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from equivalence.case import CAUSAL_CORNERS, VALUES
from equivalence.dtypes import format_of
from equivalence.errors import InvalidRequest, require
from equivalence.pasteable import defaults_omitted
from equivalence.replay import register_case

MEMORIES: Final = ("contiguous", "bshd", "sliced", "transposed")
ORDERS: Final = ("in_order", "reversed", "shuffled")


@register_case
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class VarlenCase:
    """One call on sequences packed end to end, without padding (flash-attn's varlen layout).

    Shapes: query ``[sum(q_lens), H, D]``, key ``[sum(kv_lens), Hkv, D]``, value
    ``[sum(kv_lens), Hkv, Dv]``. A sequence may have no queries, no keys, or neither.

    q_lens, kv_lens: tokens of each sequence. longer_max: by how much the announced max_seqlen_q
    and max_seqlen_k exceed the longest sequence. spare_tokens: rows of key and value behind the
    last sequence, as in a buffer of fixed size. causal, window and softcap as in
    ``AttentionCase``, counted inside each sequence. Refuses any field out of its range.
    """

    q_lens: tuple[int, ...] = (1,)
    kv_lens: tuple[int, ...] = (1,)
    num_kv_heads: int = 1
    group_size: int = 1
    head_dim: int = 1
    value_head_dim: int | None = None
    dtype: str = "float32"
    causal: str | None = None
    window: int | tuple[int, int] | None = None
    scale: float | None = None
    softcap: float | None = None
    longer_max: int = 0
    spare_tokens: int = 0
    values: str = "ramp"
    magnitude: float = 1.0
    memory: str = "contiguous"
    seed: int = 0

    __repr__ = defaults_omitted

    def __post_init__(self) -> None:
        require(
            0 < len(self.q_lens) == len(self.kv_lens)
            and min(*self.q_lens, *self.kv_lens) >= 0
            and sum(self.q_lens) > 0,
            f"q_lens={self.q_lens} and kv_lens={self.kv_lens} must hold one number each for "
            "every sequence, with at least one query in all",
        )
        for name in ("longer_max", "spare_tokens"):
            require(getattr(self, name) >= 0, f"{name}={getattr(self, name)} must not be negative")
        _require_common(self)

    @property
    def num_heads(self) -> int:
        """The number of query heads."""
        return self.num_kv_heads * self.group_size

    @property
    def v_dim(self) -> int:
        """The width of a value."""
        return self.head_dim if self.value_head_dim is None else self.value_head_dim

    def but(self, **changes: Any) -> Self:
        """The same case with some fields changed."""
        return replace(self, **changes)

    def simpler(self) -> Iterator[Self]:
        """The same case with a sequence less, or with a shorter one."""
        count = len(self.q_lens)
        for i in range(count if count > 1 else 0):
            rest = [j for j in range(count) if j != i]
            yield from _legal(
                self,
                q_lens=tuple(self.q_lens[j] for j in rest),
                kv_lens=tuple(self.kv_lens[j] for j in rest),
            )
        for name in ("q_lens", "kv_lens"):
            for lens in shorter(getattr(self, name)):
                yield from _legal(self, **{name: lens})
        for i in range(count):
            if min(self.q_lens[i], self.kv_lens[i]) > 1:
                yield from _legal(
                    self,
                    q_lens=_less(self.q_lens, i, self.q_lens[i] - 1),
                    kv_lens=_less(self.kv_lens, i, self.kv_lens[i] - 1),
                )


@register_case
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PagedCase:
    """One call on keys and values that lie in pages of a pool (flash-attn's paged cache).

    Shapes: query ``[B, H, q_len, D]``; key_pages and value_pages ``[P, page_size, Hkv, D]`` and
    ``[P, page_size, Hkv, Dv]``; page_table ``[B, n]``; kv_lengths ``[B]``. Token t of sequence b
    lies in slot ``t % page_size`` of page ``page_table[b, t // page_size]``.

    order: how pages are handed out: "in_order", "reversed", or "shuffled" by the seed.
    spare_pages: pages of the pool that belong to nobody. longer_table: columns of the page table
    beyond what the longest sequence needs, as in a table with room for what may come. causal and
    the window count from each sequence's own last key (lower right). Refuses any field out of its
    range.
    """

    kv_lengths: tuple[int, ...] = (1,)
    page_size: int = 1
    q_len: int = 1
    num_kv_heads: int = 1
    group_size: int = 1
    head_dim: int = 1
    value_head_dim: int | None = None
    order: str = "in_order"
    spare_pages: int = 0
    longer_table: int = 0
    dtype: str = "float32"
    causal: str | None = None
    window: int | tuple[int, int] | None = None
    scale: float | None = None
    softcap: float | None = None
    values: str = "ramp"
    magnitude: float = 1.0
    memory: str = "contiguous"
    seed: int = 0

    __repr__ = defaults_omitted

    def __post_init__(self) -> None:
        require(
            len(self.kv_lengths) >= 1 and min(self.kv_lengths) >= 0,
            f"kv_lengths={self.kv_lengths} must hold a number for each of one or more sequences",
        )
        for name in ("page_size", "q_len"):
            require(getattr(self, name) >= 1, f"{name}={getattr(self, name)} must be at least 1")
        for name in ("spare_pages", "longer_table"):
            require(getattr(self, name) >= 0, f"{name}={getattr(self, name)} must not be negative")
        require(self.order in ORDERS, f"order={self.order!r} is not one of {ORDERS}")
        _require_common(self)

    @property
    def num_heads(self) -> int:
        """The number of query heads."""
        return self.num_kv_heads * self.group_size

    @property
    def v_dim(self) -> int:
        """The width of a value."""
        return self.head_dim if self.value_head_dim is None else self.value_head_dim

    def but(self, **changes: Any) -> Self:
        """The same case with some fields changed."""
        return replace(self, **changes)

    def simpler(self) -> Iterator[Self]:
        """The same case with a sequence less, with a shorter one, or with all and pages shorter."""
        if self.page_size > 1:
            lens = tuple(max(min(n, 1), n - 1) for n in self.kv_lengths)
            yield from _legal(self, page_size=self.page_size - 1, kv_lengths=lens)
        for i in range(len(self.kv_lengths)):
            yield from _legal(self, kv_lengths=self.kv_lengths[:i] + self.kv_lengths[i + 1 :])
        for lens in shorter(self.kv_lengths):
            yield from _legal(self, kv_lengths=lens)
        longest = max(self.kv_lengths)
        if longest > 1 and self.q_len > 1:
            i = self.kv_lengths.index(longest)
            lens = _less(self.kv_lengths, i, longest - 1)
            yield from _legal(self, kv_lengths=lens, q_len=self.q_len - 1)


def _less(lens: tuple[int, ...], i: int, number: int) -> tuple[int, ...]:
    return (*lens[:i], number, *lens[i + 1 :])


def shorter(lens: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """``lens`` with one number made smaller; a zero may also become the simpler one."""
    for i, length in enumerate(lens):
        for smaller in sorted({1, length // 2, length - 1} - {length}):
            if smaller >= 1:
                yield _less(lens, i, smaller)


def _legal(case: Any, **changes: Any) -> Iterator[Any]:
    try:
        yield replace(case, **changes)
    except InvalidRequest:
        return


def _require_common(case: VarlenCase | PagedCase) -> None:
    for name in ("num_kv_heads", "group_size", "head_dim"):
        require(getattr(case, name) >= 1, f"{name}={getattr(case, name)} must be at least 1")
    require(
        case.value_head_dim is None or case.value_head_dim >= 1,
        f"value_head_dim={case.value_head_dim} must be at least 1",
    )
    format_of(case.dtype)
    require(
        case.causal is None or case.causal in CAUSAL_CORNERS,
        f"causal={case.causal!r} is neither None nor one of {CAUSAL_CORNERS}",
    )
    if isinstance(case.window, int):
        require(case.window >= 1, f"window={case.window} must be at least 1")
    require(case.softcap is None or case.softcap > 0, f"softcap={case.softcap} must be positive")
    require(case.values in VALUES, f"values={case.values!r} is not one of {VALUES}")
    require(case.memory in MEMORIES, f"memory={case.memory!r} is not one of {MEMORIES}")
