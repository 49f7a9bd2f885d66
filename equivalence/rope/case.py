"""One call of a rotary position embedding, as a small pasteable description."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np

from equivalence.declaration import PAIRINGS
from equivalence.dtypes import Array, format_of
from equivalence.errors import require
from equivalence.pasteable import defaults_omitted
from equivalence.replay import register_case, register_part
from equivalence.rope.scaling import RopeScaling

MEMORIES: Final = ("contiguous", "bshd", "sliced", "transposed")
VALUES: Final = ("ramp", "one_hot", "normal", "outliers", "heavy_tailed", "cancellation")
THETA: Final = 10_000.0
LAST_POSITION: Final = 2**24  # beyond it float32 does not hold every position


@register_case
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RotaryCase:
    """One call of a rotary position embedding (Su et al. 2021, RoFormer, eq. 15 and 34).

    Shapes: x ``[batch_size, num_heads, seq_len, head_dim]``, positions ``[seq_len]``, or
    ``[batch_size, seq_len]`` where they differ by row or ``per_row`` is set.

    rotary_dim: how many of the first channels move; None stands for all of them.
    pairing: "half" turns channels (i, i + rotary_dim / 2), "interleaved" (2i, 2i + 1).
    start, step: the positions are start, start + step, ...; row b starts at start + b * row_step.
    padding: the first row has that many slots of left padding, at position 0, before it starts,
        each further row one less (the last slot is never padding).
    scaling: None, or how the frequencies are scaled. attention_factor: multiplies the result;
        None stands for what the scaling says, or 1.
    values: how the numbers are made (see ``equivalence.rope.inputs``). memory: how they lie.
    """

    batch_size: int = 1
    num_heads: int = 1
    seq_len: int = 1
    head_dim: int = 2
    rotary_dim: int | None = None
    pairing: str = "half"
    theta: float = THETA
    start: int = 0
    step: int = 1
    row_step: int = 0
    padding: int = 0
    per_row: bool = False
    scaling: RopeScaling | None = None
    attention_factor: float | None = None
    dtype: str = "float32"
    values: str = "ramp"
    magnitude: float = 1.0
    memory: str = "contiguous"
    seed: int = 0

    __repr__ = defaults_omitted

    def __post_init__(self) -> None:
        for name in ("batch_size", "num_heads", "seq_len", "head_dim"):
            require(getattr(self, name) >= 1, f"{name}={getattr(self, name)} must be at least 1")
        for name in ("start", "step", "row_step", "padding"):
            require(getattr(self, name) >= 0, f"{name}={getattr(self, name)} must not be negative")
        check_dimensions(self.head_dim, self.turning)
        require(
            self.last_position <= LAST_POSITION,
            f"the last position is {self.last_position:,}, beyond {LAST_POSITION:,}",
        )
        require(self.theta > 1, f"theta={self.theta} must be above 1")
        require(self.pairing in PAIRINGS, f"pairing={self.pairing!r} is not one of {PAIRINGS}")
        check_scaling(self.scaling, self.turning)
        require(
            self.attention_factor is None or self.attention_factor > 0,
            f"attention_factor={self.attention_factor} must be positive",
        )
        format_of(self.dtype)
        require(self.values in VALUES, f"values={self.values!r} is not one of {VALUES}")
        require(self.memory in MEMORIES, f"memory={self.memory!r} is not one of {MEMORIES}")

    @property
    def turning(self) -> int:
        """How many channels move: ``rotary_dim``, or ``head_dim`` where that is None."""
        return self.head_dim if self.rotary_dim is None else self.rotary_dim

    @property
    def last_position(self) -> int:
        """No position is beyond it."""
        rows = self.row_step * (self.batch_size - 1)
        return self.start + rows + self.step * (self.seq_len - 1)

    @property
    def by_row(self) -> bool:
        """Whether positions are given for each batch row."""
        return bool(self.per_row or self.row_step or self.padding)

    def positions(self) -> Array:
        """int64 ``[S]``, or ``[B, S]`` where they are given by row."""
        slots = np.arange(self.seq_len)
        if not self.by_row:
            return self.start + self.step * slots
        rows = np.arange(self.batch_size)[:, None]
        padded = np.clip(self.padding - rows, 0, self.seq_len - 1)
        inside = self.start + self.row_step * rows + self.step * (slots - padded)
        return np.where(slots < padded, 0, inside)

    def simpler(self) -> Iterator[Self]:
        """One token instead of several, at the last position or the first."""
        if self.seq_len > 1 or self.by_row or self.batch_size > 1:
            alone = self.but(
                batch_size=1, seq_len=1, step=1, row_step=0, padding=0, per_row=self.per_row
            )
            yield from (alone.but(start=place) for place in (0, 1, self.last_position, self.start))

    def but(self, **changes: Any) -> Self:
        """The same case with some fields changed."""
        return replace(self, **changes)


register_part(RopeScaling)


def check_dimensions(head_dim: int, rotary_dim: int) -> None:
    """Refuse a rotary_dim that is odd, below 2 or above head_dim."""
    require(
        rotary_dim >= 2 and rotary_dim % 2 == 0,
        f"rotary_dim={rotary_dim} must be even and at least 2",
    )
    require(
        rotary_dim <= head_dim, f"rotary_dim={rotary_dim} must not be above head_dim={head_dim}"
    )


def check_scaling(scaling: RopeScaling | None, rotary_dim: int) -> None:
    """Refuse a scaling that makes no sense for that many channels."""
    if scaling is None:
        return
    require(
        scaling.rope_type != "dynamic" or rotary_dim >= 4,
        f"dynamic scaling raises to rotary_dim / (rotary_dim - 2): rotary_dim={rotary_dim} "
        "must be at least 4",
    )
    for name in ("short_factor", "long_factor"):
        given = getattr(scaling, name)
        require(
            given is None or len(given) == rotary_dim // 2,
            f"{name} must hold {rotary_dim // 2} numbers for rotary_dim={rotary_dim}, "
            f"not {len(given or ())}",
        )
