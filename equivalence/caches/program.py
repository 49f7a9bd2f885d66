"""The small language that a cache case is written in, and what a cache keeps as it runs.

A program is a tuple of operations, each a tuple of a word and its numbers::

    ("append", n)          the next n tokens, in every batch row
    ("append", n0, n1)     n0 of them in row 0, n1 in row 1 (``append(..., lengths=)``)
    ("attend", q)          q new queries, the last of which stands on the last token kept
    ("truncate", length)   keep the oldest ``length`` tokens
    ("reorder", i0, i1)    row b becomes what row i_b was
    ("fork",)              fork, put the original aside, and go on with the copy
    ("switch",)            go on with the one that is aside, and put this one there

Tokens and queries are fresh numbers each time, also after a fork.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from equivalence.errors import InvalidRequest, require

Operation = tuple[Any, ...]
Program = tuple[Operation, ...]
WORDS: Final = ("append", "attend", "truncate", "reorder", "fork", "switch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What a correct cache keeps in one batch row, oldest first.

    tokens: (batch row that it was appended to, number of the token); positions: absolute.
    upcoming: the position that the next token gets.
    """

    tokens: tuple[tuple[int, int], ...] = ()
    positions: tuple[int, ...] = ()
    upcoming: int = 0

    def appended(self, row: int, first: int, count: int, most: int | None) -> Kept:
        """``count`` more tokens; beyond ``most`` (None: no limit) the oldest are forgotten."""
        tokens = (*self.tokens, *((row, first + i) for i in range(count)))
        positions = (*self.positions, *range(self.upcoming, self.upcoming + count))
        start = 0 if most is None else max(0, len(tokens) - most)
        upcoming = self.upcoming + count
        return Kept(tokens=tokens[start:], positions=positions[start:], upcoming=upcoming)

    def truncated(self, length: int) -> Kept:
        """The oldest ``length`` tokens; the next one follows the last that stays."""
        if length >= len(self.tokens):
            return self
        positions = self.positions[:length]
        upcoming = self.upcoming - (len(self.tokens) - length)
        return Kept(tokens=self.tokens[:length], positions=positions, upcoming=upcoming)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What a correct cache, and the one put aside, keep after some operations.

    tokens and queries: how many of each have been used up.
    """

    rows: tuple[Kept, ...]
    aside: tuple[Kept, ...] | None = None
    tokens: int = 0
    queries: int = 0

    @classmethod
    def empty(cls, batch_size: int) -> State:
        """Nothing kept."""
        return cls(rows=(Kept(),) * batch_size)

    @property
    def lengths(self) -> tuple[int, ...]:
        """How many tokens each row keeps."""
        return tuple(len(row.tokens) for row in self.rows)

    def after(self, operation: Operation, *, max_len: int, evicts: bool) -> State:
        """The state after one operation; raises InvalidRequest where it makes no sense here."""
        word, *numbers = operation
        match word:
            case "append":
                counts = list(numbers) * (len(self.rows) if len(numbers) == 1 else 1)
                require(
                    len(counts) == len(self.rows) and min(counts) >= 0 and max(counts) >= 1,
                    f"{operation} must append one token or more to one of {len(self.rows)} rows",
                )
                full = max(n + kept for n, kept in zip(counts, self.lengths, strict=True))
                require(
                    evicts or full <= max_len,
                    f"{operation} after {max(self.lengths)} tokens exceeds max_len={max_len}",
                )
                rows = tuple(
                    kept.appended(row, self.tokens, count, max_len if evicts else None)
                    for row, (kept, count) in enumerate(zip(self.rows, counts, strict=True))
                )
                return replace(self, rows=rows, tokens=self.tokens + max(counts))
            case "attend":
                require(
                    len(numbers) == 1 and 1 <= numbers[0] <= min(self.lengths),
                    f"{operation} needs 1 to {min(self.lengths)} queries, as many as tokens",
                )
                return replace(self, queries=self.queries + numbers[0])
            case "truncate":
                require(
                    len(numbers) == 1 and 0 <= numbers[0] <= max(self.lengths),
                    f"{operation} needs a length in 0..{max(self.lengths)}",
                )
                # Whether an evicted token comes back is left open, so it is not asked.
                require(
                    all(row.upcoming == len(row.tokens) for row in self.rows),
                    f"{operation} comes after an eviction",
                )
                return replace(self, rows=tuple(row.truncated(numbers[0]) for row in self.rows))
            case "reorder":
                require(
                    len(numbers) == len(self.rows)
                    and all(0 <= i < len(self.rows) for i in numbers),
                    f"{operation} must name a row in 0..{len(self.rows) - 1} for each",
                )
                return replace(self, rows=tuple(self.rows[i] for i in numbers))
            case "fork" if not numbers:
                return replace(self, aside=self.rows)
            case "switch" if not numbers:
                require(self.aside is not None, "('switch',) needs a fork before it")
                assert self.aside is not None
                return replace(self, rows=self.aside, aside=self.rows)
        raise InvalidRequest(f"{operation} is not one of {', '.join(WORDS)} with its numbers")


@lru_cache(maxsize=256)
def states(program: Program, *, batch_size: int, max_len: int, evicts: bool) -> tuple[State, ...]:
    """The state after each operation; raises InvalidRequest at the first that makes no sense."""
    state = State.empty(batch_size)
    found = []
    for operation in program:
        state = state.after(operation, max_len=max_len, evicts=evicts)
        found.append(state)
    return tuple(found)


def mended(program: Iterable[Operation], *, batch_size: int, max_len: int, evicts: bool) -> Program:
    """The program with every number cut to what is possible, and the impossible left out.

    ``("drop", n)`` stands for a truncate that forgets the n newest tokens, ``("reach", n)`` for an
    append up to position n, or of one token where that is reached already.
    """
    state = State.empty(batch_size)
    kept: list[Operation] = []
    for operation in program:
        fitted = _fitted(operation, state, max_len, evicts)
        try:
            state = state.after(fitted, max_len=max_len, evicts=evicts)
        except InvalidRequest:
            continue
        kept.append(fitted)
    return tuple(kept)


def _fitted(operation: Operation, state: State, max_len: int, evicts: bool) -> Operation:
    word, *numbers = operation
    count = len(state.rows)
    match word:
        case "append" if not evicts:
            if len(numbers) == 1:
                return (word, min(numbers[0], max_len - max(state.lengths)))
            rooms = (max_len - length for length in state.lengths)
            return (word, *(min(n, room) for n, room in zip(numbers, rooms, strict=False)))
        case "attend":
            return (word, min(numbers[0], min(state.lengths)))
        case "truncate":
            return (word, min(numbers[0], max(state.lengths)))
        case "reach":
            count = max(1, numbers[0] - max(row.upcoming for row in state.rows))
            return _fitted(("append", count), state, max_len, evicts)
        case "drop":
            return ("truncate", max(0, max(state.lengths) - numbers[0]))
        case "reorder":
            return (word, *(i % count for i in (*numbers, *range(count))[:count]))
    return operation
