"""What is asked of a cache: its sizes, and a program that is run on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

from equivalence.accounting import kv_elements_per_token, mla_elements_per_token
from equivalence.caches.program import Operation, Program, State, mended, states
from equivalence.case import VALUES
from equivalence.dtypes import format_of
from equivalence.errors import InvalidRequest, require
from equivalence.pasteable import defaults_omitted
from equivalence.replay import register_case

SHORTEST: Program = (("append", 1), ("attend", 1))


@register_case
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CacheCase:
    """A program for a key/value cache (see ``equivalence.caches.program``).

    program: its operations, all of which must make sense in their place.
    latent_dim: None, or a cache of latents (MLA): each token is one latent and one rotary key of
    rope_dim channels, shared by all heads, and head_dim is the width of a content query before W_UK
    is absorbed.
    evicts: a full cache forgets its oldest tokens; otherwise the program never exceeds max_len.
    values, magnitude and seed make the numbers, as in ``AttentionCase``.
    Refuses any field out of its range, and a program that makes no sense.
    """

    batch_size: int = 1
    num_kv_heads: int = 1
    group_size: int = 1
    head_dim: int = 1
    latent_dim: int | None = None
    rope_dim: int = 2
    max_len: int = 1
    evicts: bool = False
    program: tuple[tuple[Any, ...], ...] = SHORTEST
    dtype: str = "float32"
    values: str = "ramp"
    magnitude: float = 1.0
    seed: int = 0

    __repr__ = defaults_omitted

    def __post_init__(self) -> None:
        for name in ("batch_size", "num_kv_heads", "group_size", "head_dim", "max_len"):
            require(getattr(self, name) >= 1, f"{name}={getattr(self, name)} must be at least 1")
        require(
            self.latent_dim is None or (self.latent_dim >= 1 and self.num_kv_heads == 1),
            f"latent_dim={self.latent_dim} must be at least 1, and num_kv_heads="
            f"{self.num_kv_heads} then 1",
        )
        require(
            self.rope_dim >= 2 and self.rope_dim % 2 == 0,
            f"rope_dim={self.rope_dim} must be even and at least 2: channels are rotated in pairs",
        )
        format_of(self.dtype)
        require(self.values in VALUES, f"values={self.values!r} is not one of {VALUES}")
        for operation in self.program:
            require(
                len(operation) > 0 and all(type(number) is int for number in operation[1:]),
                f"program holds {operation!r}, which is no word with its whole numbers",
            )
        require(self.states[-1].queries > 0, "a program must attend at least once")

    @property
    def num_heads(self) -> int:
        """The number of query heads."""
        return self.num_kv_heads * self.group_size

    @property
    def elements_per_token(self) -> int:
        """How many numbers a cache keeps for each token of a row: latent_dim + rope_dim of MLA."""
        if self.latent_dim is not None:
            return mla_elements_per_token(latent_dim=self.latent_dim, rope_dim=self.rope_dim)
        return kv_elements_per_token(num_kv_heads=self.num_kv_heads, head_dim=self.head_dim)

    @property
    def states(self) -> tuple[State, ...]:
        """What a correct cache keeps after each operation."""
        found = states(
            self.program, batch_size=self.batch_size, max_len=self.max_len, evicts=self.evicts
        )
        return found or (State.empty(self.batch_size),)

    def but(self, **changes: Any) -> Self:
        """The same case with some fields changed."""
        return replace(self, **changes)

    def running(self, program: tuple[Operation, ...], **changes: Any) -> Self | None:
        """The same case with another program, cut to what is possible; None if nothing is."""
        fields = {name: changes.get(name, getattr(self, name)) for name in ("max_len", "evicts")}
        batch_size = changes.get("batch_size", self.batch_size)
        fitted = mended(program, batch_size=batch_size, **fields)
        try:
            return self.but(program=fitted, **changes)
        except InvalidRequest:
            return None

    def simpler(self) -> Iterator[Self]:
        """The same case with fewer or smaller operations, fewer rows, or less room."""
        count = len(self.program)
        for width in (count // 2, 2, 1):
            for start in range(0, count, width) if 0 < width < count else ():
                yield from self._if(self.program[:start] + self.program[start + width :])
        for i, (word, *numbers) in enumerate(self.program):
            if word in ("append", "attend", "truncate"):
                for j, number in enumerate(numbers):
                    for smaller in sorted({0, 1, number // 2, number - 1}):
                        if 0 <= smaller < number and (smaller or len(numbers) > 1):
                            changed = (word, *numbers[:j], smaller, *numbers[j + 1 :])
                            yield from self._if(
                                (*self.program[:i], changed, *self.program[i + 1 :])
                            )
                if len(numbers) > 1:
                    changed = (word, max(numbers))
                    yield from self._if((*self.program[:i], changed, *self.program[i + 1 :]))
        for row in range(self.batch_size if self.batch_size > 1 else 0):
            fewer = tuple(_without_row(op, row, self.batch_size) for op in self.program)
            yield from self._if(fewer, batch_size=self.batch_size - 1)
        longest = max(max(state.lengths) for state in self.states)
        for room in sorted({1, longest, self.max_len // 2, self.max_len - 1}):
            if 1 <= room < self.max_len:
                yield from self._if(self.program, max_len=room)

    def _if(self, program: Program, **changes: Any) -> Iterator[Self]:
        found = self.running(program, **changes)
        if found is not None and found != self:
            yield found


def _without_row(operation: Operation, row: int, batch_size: int) -> Operation:
    """The operation for the other rows."""
    word, *numbers = operation
    if len(numbers) != batch_size or word not in ("append", "reorder"):
        return operation
    rest = numbers[:row] + numbers[row + 1 :]
    if word == "append":
        return (word, *rest)
    return (word, *(min(n - (n > row), batch_size - 2) for n in rest))
