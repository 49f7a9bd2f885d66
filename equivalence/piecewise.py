"""Judge an output piece by piece, each piece one call of attention with a reference of its own.

Packed tokens, pages and the answers of a cache are not one rectangular call, but each of their
sequences (each answer) is: it has float64 attention and the error bound of every other call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Final, Protocol, TypeVar

import numpy as np

from equivalence.bounds import Allowance, allowance
from equivalence.compare import compare
from equivalence.dtypes import Array
from equivalence.inputs import AttentionInputs
from equivalence.outcome import Outcome, Target
from equivalence.reference import Attention, attention
from equivalence.subject import BaseSubject
from equivalence.verdict import Verdict

T = TypeVar("T")
FIELDS: Final = tuple(one.name for one in fields(AttentionInputs))


@dataclass(frozen=True, kw_only=True, eq=False)
class Piece:
    """One rectangular part of an output.

    label: how messages call it, "sequence 2" say. take: cuts its ``[B, H, Sq, Dv]`` out of the
    whole output. sequences: for each batch row of ``inputs``, the sequence that it belongs to.
    facts: what a bound of its own needs to know.
    """

    label: str
    inputs: AttentionInputs
    take: Callable[[Array], Array]
    sequences: tuple[int, ...]
    facts: Mapping[str, Array] = field(default_factory=dict)
    _memory: dict[Any, Any] = field(default_factory=dict, repr=False)

    @cached_property
    def exact(self) -> Attention:
        """float64 attention of the piece."""
        return attention(self.inputs)

    def share(self, other: Piece) -> None:
        """Let ``other``, if it has the same numbers, know what this piece knows: one bound."""
        if other._memory is self._memory or not _same_call(self, other):
            return
        other.__dict__.setdefault("exact", self.exact)
        for what, found in self._memory.items():
            other._memory.setdefault(what, found)

    def once(self, what: Any, make: Callable[[], T]) -> T:
        """Remember what ``make`` returns under the name ``what``."""
        if what not in self._memory:
            self._memory[what] = make()
        found: T = self._memory[what]
        return found


def _same_call(one: Piece, other: Piece) -> bool:
    """Whether two pieces are the same call of attention, and their bounds know the same facts."""
    mine, its = vars(one.inputs), vars(other.inputs)
    return (
        all(_equal(mine[name], its[name]) for name in FIELDS)
        and one.facts.keys() == other.facts.keys()
        and all(_equal(one.facts[name], other.facts[name]) for name in one.facts)
    )


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one is other or np.array_equal(one, other)
    return not isinstance(one, np.ndarray) and not isinstance(other, np.ndarray) and one == other


class PiecewiseInputs(Protocol):
    """What a kernel is given, and the pieces that its output consists of."""

    @property
    def dtype(self) -> str:
        """The format of the operands."""
        ...

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The shape of the whole output."""
        ...

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """Its parts, in order."""
        ...


class PiecewiseSubject(BaseSubject[Any, Any, Any]):
    """A target, what is expected of it piece by piece, and a memory of what it answered."""

    def __init__(self, target: Target, domain: Any, make: Callable[[Any], Any]) -> None:
        super().__init__(target, domain)
        self._make = make

    def inputs(self, case: Any) -> Any:
        """The tensors of ``case``."""
        return self._make(case)

    def output_shape(self, inputs: PiecewiseInputs) -> tuple[int, ...]:
        """The shape of the whole output."""
        return inputs.output_shape

    def bound(self, piece: Piece) -> Allowance:
        """The error bound of one piece; kinds whose storage adds errors widen it."""
        return allowance(piece.inputs, piece.exact, self.profile(piece.inputs.dtype))

    def allowance(self, piece: Piece) -> Allowance:
        """The error bound of one piece, remembered."""
        return piece.once(("allowance", self), lambda: self.bound(piece))

    def judge(self, inputs: PiecewiseInputs, outcome: Outcome) -> Verdict:
        """Compare every piece with its float64 attention, on the rows that see a key."""
        if (problem := self.unusable(inputs, outcome)) is not None:
            return problem
        return combined(self.judge_piece(piece, outcome.output) for piece in inputs.pieces)

    def judge_piece(self, piece: Piece, output: Array) -> Verdict:
        """Compare one piece of the whole ``output`` with its float64 attention."""
        return self.against(
            piece, piece.take(output), piece.exact.output, 0.0, "outside-bound", "float64 attention"
        )

    def same(
        self, piece: Piece, actual: Array, other: Piece, expected: Array, *, kind: str, than: str
    ) -> Verdict:
        """Whether two whole outputs agree on ``piece`` and ``other`` within both their bounds."""
        slack = self.allowance(other).allowed
        other.share(piece)
        return self.against(piece, piece.take(actual), other.take(expected), slack, kind, than)

    def same_pieces(
        self,
        pairs: Iterable[tuple[Piece, Piece]],
        actual: Outcome,
        expected: Outcome,
        *,
        kind: str = "disagreement",
        than: str,
    ) -> Verdict:
        """:meth:`same` for every pair of pieces; the first that breaks, or the tightest."""
        return combined(
            self.same(mine, actual.output, other, expected.output, kind=kind, than=than)
            for mine, other in pairs
        )

    def against(
        self, piece: Piece, actual: Array, expected: Array, slack: Any, kind: str, than: str
    ) -> Verdict:
        """Whether two values of one piece agree within its bound and ``slack``."""
        own = self.allowance(piece)
        limits = replace(own, allowed=own.allowed + slack)
        dtype = piece.inputs.dtype
        facts = compare(actual, expected, limits, dtype=dtype, rows=piece.exact.seen > 0)
        verdict = self.verdict(facts, piece.inputs, kind=kind, than=than)
        if verdict.trouble is None:
            return verdict
        text = f"{piece.label} disagrees with {than} at its output{list(facts.index)}"
        return replace(verdict, trouble=replace(verdict.trouble, text=text))


def combined(verdicts: Iterable[Verdict]) -> Verdict:
    """The first broken one; else the tightest that held; else vacuous; inapplicable for none."""
    worst = Verdict(status="inapplicable")
    rank = {"inapplicable": 0, "refused": 1, "vacuous": 2, "held": 3}
    for verdict in verdicts:
        if verdict.status == "broken":
            return verdict
        key = (rank[verdict.status], verdict.used)
        if key >= (rank[worst.status], worst.used):
            worst = verdict
    return worst
