"""Several runs as one: sums, largest values and sets, whatever their order and however often.

A fact is one law of one target in one dtype in one run, as for the gate (`equivalence/gate`). A
fact that was added before adds nothing, and no sum here is of floats, so equal sets of reports
make equal pages.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from equivalence.errors import require
from equivalence.gate.baseline import together
from equivalence.gate.findings import MOST, RunId, real, run_of
from equivalence.report.audit_json import AuditJson
from equivalence.report.schema import (
    CounterexampleJson,
    DtypeJson,
    FailureJson,
    LawJson,
    Number,
    PairJson,
    ReportJson,
    TargetJson,
)
from equivalence.timing.results import TimingRun
from equivalence.used_parts import PLACES, added

LONGEST: Final = 1_000  # characters of a text in the environment
DEEPEST: Final = 4


@dataclass(slots=True)
class Row:
    """One law of one target in one dtype, over all runs."""

    verdicts: set[bool | None] = field(default_factory=set)
    examples: int = 0
    vacuous: int = 0
    refused: int = 0
    used: float = 0.0
    worst_of_all: tuple[float, int, str] = (1.0, 0, "")
    histogram: list[int] = field(default_factory=list)

    @property
    def worst(self) -> str:
        """The line that replays what used most of the bound, or a case outside of it."""
        return self.worst_of_all[2]

    @property
    def held(self) -> bool | None:
        """False where one run broke it, else True where one held."""
        return together(self.verdicts)


@dataclass(slots=True)
class Law:
    """One law of one target; ``known`` are the notes of faults that are expected."""

    rows: dict[str, Row] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)
    reasons: set[str] = field(default_factory=set)

    @property
    def held(self) -> bool | None:
        """Over all dtypes."""
        return together(row.held for row in self.rows.values())


@dataclass(slots=True)
class Fault:
    """One mistake of one target: its simplest case, and the laws and dtypes that show it."""

    kind: str
    text: str
    shown: CounterexampleJson
    law: str
    dtype: str
    laws: set[str] = field(default_factory=set)
    dtypes: set[str] = field(default_factory=set)


@dataclass(slots=True)
class MergedTarget:
    """One target of one kind over all runs."""

    name: str
    kind: str
    profiles: set[str] = field(default_factory=set)
    laws: dict[str, Law] = field(default_factory=dict)
    faults: dict[tuple[str, str, str], Fault] = field(default_factory=dict)
    not_exercised: dict[str, set[str]] = field(default_factory=dict)
    troubles: set[str] = field(default_factory=set)
    card: set[str] = field(default_factory=set)
    tolerance: dict[str, float] = field(default_factory=dict)
    graph: dict[str, float] = field(default_factory=dict)
    allocation: dict[str, float] = field(default_factory=dict)
    timings: dict[str, float] = field(default_factory=dict)
    interrupted: bool = False
    refuses_grouped: bool = False

    @property
    def held(self) -> bool | None:
        """Over all its laws; False too where a fault was told."""
        return False if self.faults else together(law.held for law in self.laws.values())

    @property
    def checks(self) -> int:
        """What was judged."""
        return sum(row.examples for law in self.laws.values() for row in law.rows.values())


@dataclass(slots=True)
class MergedPair:
    """Two formulations over all runs."""

    verdicts: set[bool | None] = field(default_factory=set)
    compared: int = 0
    equal: int = 0
    broken: int = 0
    used: float = 0.0
    replay: str = ""

    @property
    def held(self) -> bool | None:
        """False where one run broke it, else True where one held."""
        return together(self.verdicts)


@dataclass(slots=True)
class Question:
    """What runtimes answered to one question: runtime -> their meanings, or why they have none."""

    answers: dict[str, set[str]] = field(default_factory=dict)
    refused: dict[str, set[str]] = field(default_factory=dict)


@dataclass(slots=True)
class Merge:
    """What the reports that were added say together."""

    targets: dict[tuple[str, str], MergedTarget] = field(default_factory=dict)
    pairs: dict[tuple[str, str], MergedPair] = field(default_factory=dict)
    environments: dict[str, Any] = field(default_factory=dict)
    unavailable: set[tuple[str, str]] = field(default_factory=set)
    complaints: set[str] = field(default_factory=set)
    odd: set[str] = field(default_factory=set)
    remarks: set[str] = field(default_factory=set)
    questions: dict[tuple[str, str, str], Question] = field(default_factory=dict)
    differences: dict[tuple[str, str], set[tuple[str, str]]] = field(default_factory=dict)
    audits: dict[str, AuditJson] = field(default_factory=dict)
    timings: dict[str, TimingRun] = field(default_factory=dict)
    runs: set[RunId] = field(default_factory=set)
    interrupted: bool = False
    _seen: set[bytes] = field(default_factory=set)
    _known: set[bytes] = field(default_factory=set)

    def add(self, report: ReportJson, *, source: str = "the report") -> None:
        """Add one report; raises InvalidRequest, naming ``source``, for numbers no run has."""
        run = self._environment(report.environment, source)
        for target in report.targets:
            self._target(target, run, source)
        for pair in report.pairs:
            self._pair(pair, run, source)
        self._meanings(report)
        if report.timing is not None:
            self.timings[msgspec.json.encode(report.timing, order="sorted").decode()] = (
                report.timing
            )
        self.complaints.update(report.complaints)
        self.odd.update(report.odd)
        self.interrupted = self.interrupted or report.interrupted

    def _meanings(self, report: ReportJson) -> None:
        """The map of `compare`: its questions by their text, since their numbers are a report's."""
        for axis in report.axes:
            mine = self.questions.setdefault((axis.axis, axis.asks, axis.case), Question())
            for kept, new in ((mine.answers, axis.answers), (mine.refused, axis.refused)):
                for runtime, text in new.items():
                    kept.setdefault(runtime, set()).add(text)
        for one in report.disagreements:
            about = [report.axes[n - 1].axis for n in one.questions if 0 < n <= len(report.axes)]
            apart = self.differences.setdefault((one.first, one.second), set())
            apart.add((", ".join(dict.fromkeys(about)), one.case))

    def _environment(self, environment: Mapping[str, Any], source: str) -> RunId:
        environment = {_called(name): _tame(value) for name, value in environment.items()}
        encoded = msgspec.json.encode(environment, order="sorted")
        run = run_of(environment, source)
        digest = hashlib.blake2b(encoded, digest_size=16).digest()
        if digest not in self._known:
            self._known.add(digest)
            self.runs.add(run)
            unavailable = environment.get("unavailable")
            if isinstance(unavailable, Mapping):
                self.unavailable.update((str(name), str(why)) for name, why in unavailable.items())
            apart = ("seed", "unavailable")
            machine = {name: value for name, value in environment.items() if name not in apart}
            text = msgspec.json.encode(machine, order="sorted").decode()
            self.environments[text] = machine
        return run

    def _is_new(self, *fact: Any) -> bool:
        digest = hashlib.blake2b(msgspec.json.encode(fact), digest_size=16).digest()
        if digest in self._seen:
            return False
        self._seen.add(digest)
        return True

    def _target(self, target: TargetJson, run: RunId, source: str) -> None:
        key = (target.target, target.kind)
        mine = self.targets.setdefault(key, MergedTarget(*key))
        mine.profiles.add(target.profile)
        mine.interrupted = mine.interrupted or target.interrupted
        mine.refuses_grouped = mine.refuses_grouped or target.refuses_grouped
        mine.card.update(target.card)
        if target.trouble:
            mine.troubles.add(target.trouble)
        for feature, why in target.not_exercised.items():
            mine.not_exercised.setdefault(feature, set()).add(why)
        where = f"{source}: {target.target}"
        for kept, new in (
            (mine.tolerance, target.tolerance),
            (mine.graph, target.graph),
            (mine.allocation, target.allocation),
            (mine.timings, target.timings),
        ):
            _largest(kept, new, where)
        for law in target.laws:
            self._law(mine, law, run, where)
        for failure in target.failures:
            _fault(mine, failure)

    def _law(self, target: MergedTarget, law: LawJson, run: RunId, where: str) -> None:
        mine = target.laws.setdefault(law.name, Law())
        if law.known:
            mine.known.add(law.known)
        mine.reasons.update(law.reasons)
        facts = (run.seed, run.examples, run.hypothesis)
        for row in law.dtypes or [_whole(law)]:
            if self._is_new(target.name, target.kind, law.name, *facts, row):
                _add(mine.rows.setdefault(row.dtype, Row()), row, where)
        found, diagnosis = law.counterexample, law.diagnosis
        if found is not None and diagnosis is not None:
            _fault(
                target,
                FailureJson(law=law.name, dtype="", counterexample=found, diagnosis=diagnosis),
            )

    def _pair(self, pair: PairJson, run: RunId, source: str) -> None:
        mine = self.pairs.setdefault((pair.first, pair.second), MergedPair())
        _counts(f"{source}: a pair", pair.compared, pair.equal, pair.broken)
        if not self._is_new(run.seed, run.examples, run.hypothesis, pair):
            return
        mine.verdicts.add(pair.held)
        mine.compared += pair.compared
        mine.equal += pair.equal
        mine.broken += pair.broken
        mine.used = larger(mine.used, real(pair.used, f"{source}: used"))
        if pair.counterexample is not None:
            mine.replay = _shorter(mine.replay, pair.counterexample.replay)


def _add(mine: Row, row: DtypeJson, where: str) -> None:
    _counts(where, row.examples, row.vacuous, row.refused, *row.histogram)
    require(len(row.histogram) <= PLACES, f"{where}: a histogram has too many places")
    mine.verdicts.add(row.held)
    mine.examples += row.examples
    mine.vacuous += row.vacuous
    mine.refused += row.refused
    if row.histogram:
        mine.histogram = added(mine.histogram, row.histogram)
    used = real(row.used, f"{where}: used")
    mine.used = larger(mine.used, used)
    if row.worst:
        # Of equally bad cases the shorter line is shown, and of those the first in the alphabet.
        bad = math.inf if math.isnan(used) or row.held is False else used
        mine.worst_of_all = min(mine.worst_of_all, (-bad, len(row.worst), row.worst))


def _whole(law: LawJson) -> DtypeJson:
    return DtypeJson(
        dtype="",
        held=law.held,
        examples=law.examples,
        vacuous=law.vacuous,
        refused=law.refused,
        used=law.used,
    )


def _fault(target: MergedTarget, failure: FailureJson) -> None:
    """Add a fault, or what else shows a known one: each is told once, by its simplest case."""
    diagnosis, shown = failure.diagnosis, failure.counterexample
    alone = failure.law if diagnosis.kind == "unknown" else ""
    key = (diagnosis.kind, diagnosis.text, alone)
    fault = target.faults.get(key)
    if fault is None:
        fault = target.faults[key] = Fault(
            diagnosis.kind, diagnosis.text, shown, failure.law, failure.dtype
        )
    elif _simplicity(shown, failure) < _simplicity(fault.shown, fault):
        fault.shown, fault.law, fault.dtype = shown, failure.law, failure.dtype
    fault.laws.add(failure.law)
    if failure.dtype:
        fault.dtypes.add(failure.dtype)


def _simplicity(shown: CounterexampleJson, of: FailureJson | Fault) -> tuple[Any, ...]:
    text = msgspec.json.encode(shown)
    return (len(shown.case), shown.case, of.law, not of.dtype, of.dtype, text)


def _called(name: object) -> str:
    return str(name)[:LONGEST]


def _tame(value: Any, depth: int = 0) -> Any:
    """A free-form part of a report as what can be shown, whatever somebody wrote there."""
    match value:
        case None | bool() | float():
            return value
        case str():
            return value[:LONGEST]
        case int():
            return value if abs(value) < 2**63 else "a huge number"
        case Mapping() if depth < DEEPEST:
            return {_called(name): _tame(part, depth + 1) for name, part in value.items()}
        case list() | tuple() if depth < DEEPEST:
            return [_tame(part, depth + 1) for part in value]
    return "nested too deeply"


def _counts(where: str, *numbers: int) -> None:
    for number in numbers:
        require(0 <= number <= MOST, f"{where}: a count is out of range")


def _largest(kept: dict[str, float], new: Mapping[str, Number], where: str) -> None:
    for name, value in new.items():
        found = real(value, f"{where}: {name}")
        kept[name] = larger(kept.get(name, found), found)


def larger(one: float, two: float) -> float:
    """The larger one; NaN hides nothing and is kept whatever it meets."""
    return math.nan if math.isnan(one) or math.isnan(two) else max(one, two)


def _shorter(one: str, two: str) -> str:
    return min((len(text), text) for text in (one, two) if text)[1] if one or two else ""


def merged(reports: Iterable[ReportJson]) -> Merge:
    """What these reports say together."""
    merge = Merge()
    for report in reports:
        merge.add(report)
    return merge
