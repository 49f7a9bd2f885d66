"""Judge an output piece by piece, each piece one call of attention with a reference of its own.

Packed tokens, pages and the answers of a cache are not one rectangular call, but each of their
sequences (each answer) is: it has float64 attention and the error bound of every other call.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Protocol, TypeVar

from equivalence.bounds import Allowance, allowance
from equivalence.compare import compare
from equivalence.dtypes import Array
from equivalence.inputs import AttentionInputs
from equivalence.outcome import Outcome, Target
from equivalence.profiles import Profile, profile_for
from equivalence.reference import Attention, attention
from equivalence.subject import Subject
from equivalence.verdict import Trouble, Verdict, broken, refused

REMEMBERED: Final = 64
T = TypeVar("T")


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

    def once(self, what: Any, make: Callable[[], T]) -> T:
        """Remember what ``make`` returns under the name ``what``."""
        if what not in self._memory:
            self._memory[what] = make()
        found: T = self._memory[what]
        return found


class PiecewiseInputs(Protocol):
    """What a kernel is given, and the pieces that its output consists of."""

    @property
    def dtype(self) -> str:
        """The format of the operands."""

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The shape of the whole output."""

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """Its parts, in order."""


class PiecewiseSubject:
    """A target, what is expected of it piece by piece, and a memory of what it answered."""

    def __init__(self, target: Target, domain: Any, make: Callable[[Any], Any]) -> None:
        self.target = target
        self.domain = domain
        self._make = make
        self._words = Subject(target, domain)
        self._memory: OrderedDict[tuple[str, Any], Any] = OrderedDict()

    @property
    def declared(self) -> Any:
        """The declaration of the target."""
        return self.target.declaration

    def profile(self, dtype: str) -> Profile:
        """The precision profile that judges ``dtype``."""
        return profile_for(dtype, self.target.declaration.profile)

    def inputs(self, case: Any) -> Any:
        """The tensors of ``case``."""
        return self._make(case)

    def _once(self, what: str, inputs: Any, make: Callable[[], T]) -> T:
        key = (what, inputs)
        if key not in self._memory:
            self._memory[key] = make()
            if len(self._memory) > REMEMBERED:
                self._memory.popitem(last=False)
        found: T = self._memory[key]
        return found

    def call(self, inputs: Any) -> Outcome:
        """The target's outcome; the first one, when the same inputs were asked before."""
        return self._once("call", inputs, lambda: self.target.call(inputs))

    def call_again(self, inputs: Any) -> Outcome:
        """A fresh call that is not remembered."""
        return self.target.call(inputs)

    def bound(self, piece: Piece) -> Allowance:
        """The error bound of one piece; kinds whose storage adds errors widen it."""
        return allowance(piece.inputs, piece.exact, self.profile(piece.inputs.dtype))

    def allowance(self, piece: Piece) -> Allowance:
        """The error bound of one piece, remembered."""
        return piece.once(("allowance", self), lambda: self.bound(piece))

    def unusable(self, inputs: PiecewiseInputs, outcome: Outcome) -> Verdict | None:
        """The verdict on an outcome that holds no output of the right shape and dtype."""
        match outcome.status:
            case "refused":
                return refused(outcome.text)
            case "raised" | "died":
                return broken(Trouble(kind="crash", text=outcome.text))
            case "hung":
                return broken(Trouble(kind="hang", text=outcome.text))
            case "memory":
                return broken(Trouble(kind="memory", text=outcome.text))
            case "returned":
                pass
        expected = inputs.output_shape
        if outcome.stored is None:
            return broken(Trouble(kind="wrong-shape", text=outcome.text))
        if outcome.stored.shape != expected:
            text = f"output has shape {list(outcome.stored.shape)}, expected {list(expected)}"
            return broken(Trouble(kind="wrong-shape", text=text))
        if outcome.dtype != inputs.dtype:
            text = f"output is {outcome.dtype}, expected {inputs.dtype}"
            return broken(Trouble(kind="wrong-dtype", text=text))
        return None

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

    def sound(self, inputs: PiecewiseInputs, outcome: Outcome) -> bool:
        """Whether an outcome agrees with float64 attention; laws on two calls start from one."""
        return self._once("sound", inputs, lambda: self.judge(inputs, outcome).status != "broken")

    def same(
        self, piece: Piece, actual: Array, other: Piece, expected: Array, *, kind: str, than: str
    ) -> Verdict:
        """Whether two whole outputs agree on ``piece`` and ``other`` within both their bounds."""
        slack = self.allowance(other).allowed
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
        verdict = self._words.verdict(facts, piece.inputs, kind=kind, than=than)
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
