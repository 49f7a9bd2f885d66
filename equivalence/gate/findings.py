"""What reports say, as sets of facts: the merge of several shards is their union.

A union has no order, and a report that is given twice adds nothing. Two shards that ran the same
law, target and dtype with other seeds are two facts, and their counts add up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from equivalence.bounded import read_bytes
from equivalence.campaign.ledger import is_ledger, lines_of
from equivalence.errors import require
from equivalence.report.json import from_json
from equivalence.report.schema import DtypeJson, LawJson, Number, PairJson, ReportJson, TargetJson
from equivalence.xfails import EXPECTED

LARGEST: Final = 256 * 2**20  # bytes of a report
MOST: Final = 2**53
Numbers = tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class RunId:
    """What makes two runs draw the same cases, unless they were ``bounded`` by time."""

    seed: int
    examples: int
    hypothesis: str
    bounded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One law of one target in one dtype, in one run; ``expected``: it may fail."""

    target: str
    law: str
    dtype: str
    run: RunId
    held: bool | None
    examples: int
    vacuous: int
    refused: int
    used: float
    expected: bool = False
    replay: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """One target in one run, beside its laws."""

    target: str
    kind: str
    profile: str
    run: RunId
    trouble: str = ""
    interrupted: bool = False
    refuses_grouped: bool = False
    not_exercised: tuple[tuple[str, str], ...] = ()
    tolerance: Numbers = ()
    graph: Numbers = ()
    allocation: Numbers = ()
    ratios: Numbers = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two formulations in one run."""

    first: str
    second: str
    run: RunId
    held: bool | None
    replay: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Everything that some runs found."""

    judged: frozenset[Judged] = frozenset()
    about: frozenset[About] = frozenset()
    pairs: frozenset[Pair] = frozenset()
    unavailable: frozenset[tuple[str, str]] = frozenset()
    complaints: frozenset[str] = frozenset()

    def __or__(self, other: Findings) -> Findings:
        """Both together."""
        return Findings(
            judged=self.judged | other.judged,
            about=self.about | other.about,
            pairs=self.pairs | other.pairs,
            unavailable=self.unavailable | other.unavailable,
            complaints=self.complaints | other.complaints,
        )


def read_findings(paths: Iterable[Path]) -> Findings:
    """What reports and ledgers say together; raises InvalidRequest for any other file."""
    parts = []
    for path in paths:
        if is_ledger(path):
            lines = lines_of(path, lambda text: None)  # what is no line was run again
            for line in lines:
                parts.append(findings_of(line.report, source=str(path)))
                if line.lost:
                    parts.append(Findings(complaints=frozenset([f"{line.shard}: {line.lost}"])))
            continue
        text = read_bytes(path, most=LARGEST)
        parts.append(findings_of(from_json(text, source=str(path)), source=str(path)))
    return Findings(
        judged=frozenset().union(*(part.judged for part in parts)),
        about=frozenset().union(*(part.about for part in parts)),
        pairs=frozenset().union(*(part.pairs for part in parts)),
        unavailable=frozenset().union(*(part.unavailable for part in parts)),
        complaints=frozenset().union(*(part.complaints for part in parts)),
    )


def findings_of(report: ReportJson, *, source: str = "the report") -> Findings:
    """What one report says; raises InvalidRequest for numbers that no run has."""
    run = run_of(report.environment, source)
    unavailable = report.environment.get("unavailable")
    missing = unavailable.items() if isinstance(unavailable, Mapping) else ()
    return Findings(
        judged=frozenset(
            judged
            for target in report.targets
            for law in target.laws
            for judged in _judged(target.target, law, run, source)
        ),
        about=frozenset(_about(target, run, source) for target in report.targets),
        pairs=frozenset(_pair(pair, run) for pair in report.pairs),
        unavailable=frozenset((str(name), str(why)) for name, why in missing),
        complaints=frozenset(report.complaints),
    )


def run_of(environment: Mapping[str, Any], source: str) -> RunId:
    """What tells the run apart that was made in ``environment``."""
    packages = environment.get("packages")
    version = packages.get("hypothesis") if isinstance(packages, Mapping) else None
    numbers = [environment.get(name, 0) for name in ("seed", "examples")]
    for number in numbers:
        require(
            isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= MOST,
            f"{source}: its seed or examples is no whole number in range",
        )
    bounded = environment.get("seconds") is not None
    return RunId(
        seed=numbers[0], examples=numbers[1], hypothesis=str(version or ""), bounded=bounded
    )


def _judged(target: str, law: LawJson, run: RunId, source: str) -> Iterable[Judged]:
    whole = DtypeJson(
        dtype="",
        held=law.held,
        examples=law.examples,
        vacuous=law.vacuous,
        refused=law.refused,
        used=law.used,
    )
    expected = law.known.startswith(EXPECTED)
    replay = law.counterexample.replay if law.counterexample is not None else ""
    for row in law.dtypes or [whole]:
        for number in (row.examples, row.vacuous, row.refused):
            require(0 <= number <= MOST, f"{source}: {target}: a count is out of range")
        yield Judged(
            target=target,
            law=law.name,
            dtype=row.dtype,
            run=run,
            held=False if expected and row.held else row.held,
            examples=row.examples,
            vacuous=row.vacuous,
            refused=row.refused,
            used=real(row.used, f"{source}: {target}: used"),
            expected=expected,
            replay=(replay or row.worst) if row.held is False else "",
        )


def _about(target: TargetJson, run: RunId, source: str) -> About:
    def numbers(named: Mapping[str, Number]) -> Numbers:
        where = f"{source}: {target.target}"
        return tuple(sorted((k, real(v, f"{where}: {k}")) for k, v in named.items()))

    return About(
        target=target.target,
        kind=target.kind,
        profile=target.profile,
        run=run,
        trouble=target.trouble,
        interrupted=target.interrupted,
        refuses_grouped=target.refuses_grouped,
        not_exercised=tuple(sorted(target.not_exercised.items())),
        tolerance=numbers(target.tolerance),
        graph=numbers(target.graph),
        allocation=numbers(target.allocation),
        ratios=numbers(target.ratios),
    )


def _pair(pair: PairJson, run: RunId) -> Pair:
    replay = pair.counterexample.replay if pair.counterexample is not None else ""
    return Pair(first=pair.first, second=pair.second, run=run, held=pair.held, replay=replay)


def real(value: Number, what: str) -> float:
    """The float behind a number of a report."""
    names = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
    if isinstance(value, str):
        require(value in names, f"{what} is {value[:40]!r}, not a number")
        return names[value]
    return float(value)
