"""What is asked: a case is a small, pasteable description from which every tensor follows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, Self

from equivalence.dtypes import format_of
from equivalence.errors import is_whole, require, require_size
from equivalence.masks import Mask
from equivalence.pasteable import defaults_omitted

HEAD_ORDERS: Final = ("grouped", "interleaved")
CAUSAL_CORNERS: Final = ("lower_right", "upper_left")
MEMORIES: Final = ("contiguous", "bshd", "sliced", "transposed", "expanded")
VALUES: Final = (
    "ramp",
    "steps",
    "zero",
    "one_hot",
    "normal",
    "offset",
    "equal_keys",
    "outliers",
    "heavy_tailed",
    "cancellation",
    "peaky",
    "long_sum",
)
UNSEEDED: Final = ("ramp", "steps", "zero")  # of them, those that no seed changes

HeadOrder = str | tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class HeadLayout:
    """Which key/value head each query head reads.

    ``order`` is ``"grouped"`` (query head h reads h // group_size), ``"interleaved"``
    (h % num_kv_heads), or the explicit map, one key/value head for each query head.
    """

    num_kv_heads: int = 1
    group_size: int = 1
    order: HeadOrder = "grouped"

    __repr__ = defaults_omitted

    def __post_init__(self) -> None:
        require_size("num_kv_heads", self.num_kv_heads)
        require_size("group_size", self.group_size)
        if isinstance(self.order, str):
            require(
                self.order in HEAD_ORDERS, f"head order {self.order!r} is not one of {HEAD_ORDERS}"
            )
        else:
            require(
                len(self.order) == self.num_heads
                and all(is_whole(h) and 0 <= h < self.num_kv_heads for h in self.order),
                f"head order {self.order!r} must name a key/value head in "
                f"0..{self.num_kv_heads - 1} for each of the {self.num_heads} query heads",
            )

    @property
    def num_heads(self) -> int:
        """The number of query heads."""
        return self.num_kv_heads * self.group_size

    @property
    def kv_head_of(self) -> tuple[int, ...]:
        """For each query head, the key/value head that it reads."""
        if self.order == "grouped":
            return tuple(h // self.group_size for h in range(self.num_heads))
        if self.order == "interleaved":
            return tuple(h % self.num_kv_heads for h in range(self.num_heads))
        return tuple(int(head) for head in self.order)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AttentionCase:
    """One call of scaled dot-product attention (Vaswani et al. 2017, section 3.2.1, eq. 1).

    Shapes: query ``[batch_size, num_heads, q_len, head_dim]``, key ``[batch_size, num_kv_heads,
    kv_len, head_dim]``, value ``[batch_size, num_kv_heads, kv_len, value_head_dim]``, where
    ``num_heads = num_kv_heads * group_size``.

    causal: None, ``"lower_right"`` (the last query sees the last key) or ``"upper_left"``.
    window: None; an int w >= 1, the keys visible to a query, itself included, and causal; or
        (left, right), neighbours on each side, -1 for no limit. Lower-right coordinates.
    scale: None stands for head_dim ** -0.5. softcap: c * tanh(s / c), before mask and bias.
    sinks, alibi: whether each query head gets a sink logit, or an ALiBi slope.
    kv_lengths: None, or for each batch row the keys that are in use.
    values: how the numbers are made (see ``equivalence.inputs``); magnitude multiplies the query.
    plants: ``(operand, head, position, number)`` fills one row of "query", "key" or "value".
    memory: how the tensors lie in memory. Refuses any field out of its range.
    """

    batch_size: int = 1
    num_kv_heads: int = 1
    group_size: int = 1
    head_order: HeadOrder = "grouped"
    q_len: int = 1
    kv_len: int = 1
    head_dim: int = 1
    value_head_dim: int | None = None
    dtype: str = "float32"
    causal: str | None = None
    window: int | tuple[int, int] | None = None
    mask: Mask | None = None
    scale: float | None = None
    softcap: float | None = None
    sinks: bool = False
    alibi: bool = False
    kv_lengths: tuple[int, ...] | None = None
    values: str = "ramp"
    magnitude: float = 1.0
    plants: tuple[tuple[str, int, int, float], ...] = ()
    memory: str = "contiguous"
    seed: int = 0

    __repr__ = defaults_omitted

    def __post_init__(self) -> None:
        for name in ("batch_size", "q_len", "head_dim"):
            require_size(name, getattr(self, name))
        require_size("kv_len", self.kv_len, lowest=0)
        if self.value_head_dim is not None:
            require_size("value_head_dim", self.value_head_dim)
        format_of(self.dtype)
        _ = self.heads
        require(
            self.causal is None or self.causal in CAUSAL_CORNERS,
            f"causal={self.causal!r} is neither None nor one of {CAUSAL_CORNERS}",
        )
        if isinstance(self.window, tuple):
            sides: tuple[int, ...] = self.window
            require(
                len(sides) == 2 and all(is_whole(side) and side >= -1 for side in sides),
                f"window={self.window} must be (left, right), whole numbers of at least -1",
            )
        elif self.window is not None:
            require_size("window", self.window)
        require(
            self.mask is None or isinstance(self.mask, Mask), f"mask={self.mask!r} is not a Mask"
        )
        require(
            self.softcap is None or self.softcap > 0, f"softcap={self.softcap} must be positive"
        )
        if self.kv_lengths is not None:
            require(
                len(self.kv_lengths) == self.batch_size
                and all(is_whole(n) and 0 <= n <= self.kv_len for n in self.kv_lengths),
                f"kv_lengths={self.kv_lengths} must hold {self.batch_size} numbers "
                f"in 0..{self.kv_len}",
            )
        require(self.values in VALUES, f"values={self.values!r} is not one of {VALUES}")
        require(self.memory in MEMORIES, f"memory={self.memory!r} is not one of {MEMORIES}")
        require_size("seed", self.seed, lowest=0)
        for plant in self.plants:
            row: tuple[Any, ...] = plant
            require(
                len(row) == 4
                and row[0] in ("query", "key", "value")
                and all(is_whole(place) and place >= 0 for place in row[1:3]),
                f"plants={self.plants!r} holds {row!r}, which is not (operand, head, position, "
                "number) with a query, key or value, and places that count from 0",
            )

    @property
    def heads(self) -> HeadLayout:
        """The head layout of the case."""
        return HeadLayout(
            num_kv_heads=self.num_kv_heads, group_size=self.group_size, order=self.head_order
        )

    @property
    def num_heads(self) -> int:
        """The number of query heads."""
        return self.num_kv_heads * self.group_size

    @property
    def v_dim(self) -> int:
        """The width of a value: ``value_head_dim``, or ``head_dim`` where that is None."""
        return self.head_dim if self.value_head_dim is None else self.value_head_dim

    @property
    def band(self) -> tuple[int, int] | None:
        """The window as (left, right) neighbours of the diagonal, -1 for no limit."""
        return (self.window - 1, 0) if isinstance(self.window, int) else self.window

    def but(self, **changes: Any) -> Self:
        """The same case with some fields changed."""
        return replace(self, **changes)
