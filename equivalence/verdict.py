"""What a law says about one case, and about a whole search. Plain facts; nothing here raises."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

Status = Literal["held", "vacuous", "refused", "broken", "inapplicable"]

TROUBLES: Final = (
    "outside-bound",
    "non-finite",
    "disagreement",
    "wrong-shape",
    "wrong-dtype",
    "input-mutation",
    "not-repeatable",
    "batch-dependence",
    "hidden-keys",
    "strides",
    "future-keys",
    "ignored-option",
    "answered-refusal",
    "refusal",
    "masked-rows",
    "nan-leak",
    "nan-laundered",
    "lse",
    "gradient",
    "declaration",
    "positions",
    "bytes",
    "crash",
    "hang",
    "memory",
)

# Told after what is wrong in ordinary numbers.
POISONED: Final = ("nan-leak", "nan-laundered")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """One disagreement: what was got, what was expected, where, and by how much.

    kind: one of ``TROUBLES``; two kinds in one kernel are two faults. used: worst error over
    allowed error. index: of the worst element. outside, total: elements beyond the bound, of all.
    where: in words, the part of the output that is wrong. note: one sentence, may be empty.
    """

    kind: str
    text: str
    index: tuple[int, ...] = ()
    got: float | None = None
    expected: float | None = None
    error: float | None = None
    allowed: float | None = None
    used: float | None = None
    outside: int = 0
    total: int = 0
    where: str = ""
    profile: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A law's answer for one case.

    used is the worst error over the allowed error (0 where nothing is compared); natural is the
    worst error in units of u sum_j p_j |v_j|; reason says why a case was refused, excluded whether
    its author declared so; remarks are facts that are reported but not judged (a non-finite value
    outside the domain, say).
    """

    status: Status
    used: float = 0.0
    natural: float = 0.0
    trouble: Trouble | None = None
    reason: str = ""
    excluded: bool = False
    remarks: tuple[str, ...] = ()


HELD: Final = Verdict(status="held")
INAPPLICABLE: Final = Verdict(status="inapplicable")


def broken(trouble: Trouble) -> Verdict:
    """A broken law."""
    return Verdict(status="broken", trouble=trouble, used=trouble.used or 0.0)


def refused(reason: str) -> Verdict:
    """A case that the target refused."""
    return Verdict(status="refused", reason=reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterexample:
    """The smallest case found for one kind of trouble, and the line that replays it."""

    case: Any
    trouble: Trouble
    replay: str


@dataclass(slots=True, kw_only=True)
class LawResult:
    """What a search found out about one law on one target in one dtype.

    excluded: those of the refused cases that its author declared so. first: how many cases had
    been drawn when it first broke, None while it holds. histogram: the checks by the part of the
    bound that they used (``equivalence.used_parts.EDGES``).
    """

    law: str
    dtype: str
    examples: int = 0
    vacuous: int = 0
    refused: int = 0
    excluded: int = 0
    used: float = 0.0
    worst_case: Any = None
    histogram: list[int] = field(default_factory=list)
    reasons: dict[str, int] = field(default_factory=dict)
    remarks: dict[str, int] = field(default_factory=dict)
    counterexamples: list[Counterexample] = field(default_factory=list)
    broken: int = 0
    known: str = ""
    seconds: float = 0.0
    first: int | None = None
    times: list[float] = field(default_factory=list)

    def refused_share(self, *, declared: bool = True) -> float:
        """Of all cases, the part that was refused; declared: those that its author excluded too."""
        refused = self.refused if declared else self.refused - self.excluded
        return refused / max(1, refused + self.examples + self.vacuous)

    @property
    def held(self) -> bool | None:
        """False once broken; None when nothing non-vacuous was judged.

        ``known`` is the note of a fault that was expected: it is shown, and breaks nothing.
        """
        if self.broken or self.counterexamples:
            return False
        return True if self.examples else None
