"""What a page shows of merged runs: each view is computed from the merge and from nothing else."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import reduce
from typing import Final

from equivalence.report.merging import Fault, Law, Merge, MergedPair, MergedTarget, Question, larger
from equivalence.report.numbers import counted, short
from equivalence.used_parts import EDGES, added

MARKS: Final = {
    "held": "+",
    "broken": "X",
    "known": "!",
    "nothing": "-",
    "absent": "",
}
WORDS: Final = {
    "held": "held",
    "broken": "broken",
    "known": "a fault that is expected",
    "nothing": "nothing judged",
    "absent": "not in these runs",
}
MOST_CASES: Final = 20


def _edge(value: float) -> str:
    return f"{value:g}" if value == 0 or value >= 0.1 else f"1/{round(1 / value)}"


STRIP_LABELS: Final = (*(_edge(edge) for edge in EDGES), "more")
STRIP_WORDS: Final = (
    "equal",
    *(f"up to {_edge(edge)} of the bound" for edge in EDGES[1:]),
    "beyond the bound",
)


@dataclass(frozen=True, slots=True)
class Cell:
    """One law of one target."""

    state: str
    anchor: str
    words: str


@dataclass(frozen=True, slots=True)
class Matrix:
    """Targets of one kind and their laws."""

    kind: str
    laws: list[str]
    rows: list[tuple[str, str, str, list[Cell]]]


@dataclass(frozen=True, slots=True)
class Shown:
    """One target in detail: its place on the page, its faults and laws in the order shown."""

    anchor: str
    name: str
    found: MergedTarget
    state: str
    laws: list[tuple[str, str, str, Law]]
    faults: list[Fault]


@dataclass(frozen=True, slots=True)
class Strip:
    """How much of the bound one target used in one dtype; bars are shares from 0 to 1."""

    target: str
    checks: int
    used: float
    bars: list[tuple[float, int]]


@dataclass(frozen=True, slots=True)
class Distribution:
    """All targets of one kind in one dtype."""

    kind: str
    dtype: str
    whole: Strip
    strips: list[Strip] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Near:
    """A case that held and used much of its bound."""

    target: str
    law: str
    dtype: str
    used: float
    replay: str


@dataclass(frozen=True, slots=True)
class Disagreements:
    """Formulations against each other; a cell is None on the diagonal and where none was made."""

    names: list[str]
    rows: list[list[MergedPair | None]]


def state_of(held: bool | None, known: bool = False) -> str:
    """The word for a verdict; a key of ``MARKS``."""
    if held is None:
        return "nothing"
    return "broken" if held is False else "known" if known else "held"


def headline(merge: Merge) -> tuple[str, str]:
    """The state of the whole, and the sentence that says it."""
    found = list(merge.targets.values())
    broken = sum(target.held is False for target in found)
    held = sum(target.held is True for target in found)
    idle = len(found) - broken - held
    pairs = sum(pair.held is False for pair in merge.pairs.values())
    checks = sum(target.checks for target in found)
    graphs = sum(len(audit.graphs) for audit in merge.audits.values())
    over = {(one.graph, one.limit) for audit in merge.audits.values() for one in audit.exceeded}
    if not (found or merge.pairs or graphs or merge.questions):
        return "nothing", "These files hold no target, no pair and no graph."
    parts = []
    if found:
        parts.append(
            f"{held} of {counted(len(found), 'target')} held in {counted(checks, 'check')}"
        )
    if broken:
        parts.append(f"{broken} broke a law")
    if idle:
        parts.append(f"{idle} judged by nothing")
    if merge.pairs:
        verb = "none apart" if not pairs else f"{pairs} apart"
        parts.append(f"{counted(len(merge.pairs), 'pair')} compared, {verb}")
    if merge.questions:
        asked = counted(len(merge.questions), "question")
        parts.append(f"{asked} asked, {counted(len(merge.differences), 'pair')} of runtimes differ")
    if graphs:
        verb = f", over their budget in {counted(len(over), 'way')}" if over else ""
        parts.append(f"{counted(graphs, 'graph')} audited{verb}")
    if merge.complaints:
        parts.append(counted(len(merge.complaints), "complaint"))
    if merge.interrupted:
        parts.append("interrupted: this is what was known")
    bad = broken or pairs or merge.complaints or over
    state = "broken" if bad else "held" if held or not found else "nothing"
    return state, "; ".join(parts) + "."


def targets(merge: Merge) -> list[Shown]:
    """Every target: those that broke a law first, then by name."""
    shown = []
    for place, (_, found) in enumerate(sorted(merge.targets.items())):
        laws = [
            (law, f"t{place}-{number}", state_of(row.held, bool(row.known)), row)
            for number, (law, row) in enumerate(sorted(found.laws.items()))
        ]
        faults = sorted(found.faults.values(), key=lambda f: (len(f.shown.case), f.kind, f.text))
        shown.append(Shown(f"t{place}", found.name, found, state_of(found.held), laws, faults))
    return sorted(shown, key=lambda one: one.state != "broken")


def matrices(merge: Merge) -> list[Matrix]:
    """One table for each kind: a row a target, a column a law."""
    kinds: dict[str, list[Shown]] = {}
    for shown in sorted(targets(merge), key=lambda one: one.name):
        kinds.setdefault(shown.found.kind, []).append(shown)
    made = []
    for kind, of_kind in sorted(kinds.items()):
        names = sorted({law for one in of_kind for law in one.found.laws})
        rows = []
        for one in of_kind:
            own = {law: (anchor, state, row) for law, anchor, state, row in one.laws}
            cells = [_cell(law, *own[law]) if law in own else _absent(law) for law in names]
            rows.append((one.anchor, one.name, one.state, cells))
        made.append(Matrix(kind, names, rows))
    return made


def _cell(law: str, anchor: str, state: str, row: Law) -> Cell:
    checks = sum(part.examples for part in row.rows.values())
    worst = reduce(larger, (part.used for part in row.rows.values()), 0.0)
    used = f", worst {short(worst)} of its bound" if worst else ""
    return Cell(state, anchor, f"{law}: {WORDS[state]} ({counted(checks, 'check')}{used})")


def _absent(law: str) -> Cell:
    return Cell("absent", "", f"{law}: {WORDS['absent']}")


def distributions(merge: Merge) -> list[Distribution]:
    """How much of the bound was used, for each kind and dtype, by the laws that compare numbers."""
    found: dict[tuple[str, str], list[Strip]] = {}
    for (name, kind), target in sorted(merge.targets.items()):
        dtypes: dict[str, list[int]] = {}
        worst: dict[str, float] = {}
        for law in target.laws.values():
            for dtype, row in law.rows.items():
                if sum(row.histogram[1:]):
                    dtypes[dtype] = added(dtypes.get(dtype, []), row.histogram)
                    worst[dtype] = larger(worst.get(dtype, 0.0), row.used)
        for dtype, histogram in dtypes.items():
            strip = _strip(name, histogram, worst[dtype])
            found.setdefault((kind, dtype), []).append(strip)
    return [
        Distribution(kind, dtype, _whole(strips), strips)
        for (kind, dtype), strips in sorted(found.items())
    ]


def _strip(name: str, histogram: list[int], used: float) -> Strip:
    total = sum(histogram)
    return Strip(name, total, used, [(n / max(1, total), n) for n in histogram])


def _whole(strips: list[Strip]) -> Strip:
    counts: list[int] = []
    for strip in strips:
        counts = added(counts, [n for _, n in strip.bars])
    return _strip("all", counts, reduce(larger, (strip.used for strip in strips)))


def worst_cases(merge: Merge) -> list[Near]:
    """The cases that came nearest to their bound and held, the nearest first."""
    found = [
        Near(name, law, dtype, row.used, row.worst)
        for (name, _), target in merge.targets.items()
        for law, facts in target.laws.items()
        for dtype, row in facts.rows.items()
        if row.worst and row.held and row.used > 0 and not math.isnan(row.used)
    ]
    return sorted(found, key=lambda n: (-n.used, n.target, n.law, n.dtype))[:MOST_CASES]


def disagreements(merge: Merge) -> Disagreements | None:
    """Every pair that was compared; None where the runs compared none."""
    if not merge.pairs:
        return None
    names = sorted({name for pair in merge.pairs for name in pair})
    both = {**merge.pairs, **{(b, a): pair for (a, b), pair in merge.pairs.items()}}
    return Disagreements(names, [[both.get((a, b)) for b in names] for a in names])


@dataclass(frozen=True, slots=True)
class Meanings:
    """Who means what: a row a question, a column a runtime, and the pairs that differ."""

    runtimes: list[str]
    rows: list[tuple[str, str, str, list[tuple[str, str]]]]
    differences: list[tuple[str, str, str, str]]


def meanings(merge: Merge) -> Meanings | None:
    """The map of `compare`; None where no run has one. A cell says "answer", "refused" or ""."""
    if not merge.questions:
        return None
    runtimes = sorted({name for q in merge.questions.values() for name in (*q.answers, *q.refused)})
    rows = [
        (axis, asks, case, [_meaning(question, name) for name in runtimes])
        for (axis, asks, case), question in sorted(merge.questions.items())
    ]
    differences = [
        (first, second, about, case)
        for (first, second), found in sorted(merge.differences.items())
        for about, case in sorted(found)
    ]
    return Meanings(runtimes, rows, differences)


def _meaning(question: Question, runtime: str) -> tuple[str, str]:
    if runtime in question.answers:
        return "answer", "; ".join(sorted(question.answers[runtime]))
    if runtime in question.refused:
        return "refused", "; ".join(sorted(question.refused[runtime]))
    return "", ""


def curves(merge: Merge) -> list[tuple[str, list[tuple[str, float]]]]:
    """What was timed, by target; seconds of each thing."""
    return [
        (name, sorted(target.timings.items()))
        for (name, _), target in sorted(merge.targets.items())
        if target.timings
    ]
