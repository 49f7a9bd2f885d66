"""The baseline: what was found and accepted, as JSON that is committed and diffs well."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from equivalence.bounded import read_bytes
from equivalence.errors import InvalidRequest
from equivalence.gate.findings import LARGEST, About, Findings, Judged, Numbers, real
from equivalence.profiles import LOOSENING
from equivalence.report.json import decoded, number, strict
from equivalence.report.schema import Number
from equivalence.tolerances.table import outward

SCHEMA: Final = 1
Whole = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class RunState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run: equal ones draw the same cases, unless they were bounded by time."""

    seed: Whole
    examples: Whole
    hypothesis: str
    bounded: bool = False


class LawState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One law in one dtype."""

    held: bool | None
    examples: Whole
    vacuous: Whole = 0
    refused: Whole = 0
    used: Number = 0.0

    @property
    def cases(self) -> int:
        """All that it looked at."""
        return self.examples + self.vacuous + self.refused


class TargetState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One target."""

    kind: str
    profile: str
    laws: dict[str, dict[str, LawState]]
    not_exercised: dict[str, str] = {}
    tolerance: dict[str, Number] = {}
    graph: dict[str, Number] = {}
    allocation: dict[str, Number] = {}
    ratios: dict[str, Number] = {}


class Baseline(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that is accepted; ``pairs`` are "first = second"."""

    schema: int
    runs: list[RunState]
    targets: dict[str, TargetState]
    pairs: dict[str, bool | None] = {}


def baseline_of(findings: Findings) -> Baseline:
    """What findings add up to: the same whatever their order."""
    targets = sorted({about.target for about in findings.about})
    runs = sorted({about.run for about in findings.about})
    pairs: dict[str, list[bool | None]] = {}
    for pair in findings.pairs:
        pairs.setdefault(f"{pair.first} = {pair.second}", []).append(pair.held)
    return Baseline(
        schema=SCHEMA,
        runs=[
            RunState(
                seed=run.seed,
                examples=run.examples,
                hypothesis=run.hypothesis,
                bounded=run.bounded,
            )
            for run in runs
        ],
        targets={name: _target(name, findings) for name in targets},
        pairs={name: together(pairs[name]) for name in sorted(pairs)},
    )


def together(verdicts: Iterable[bool | None]) -> bool | None:
    """False where one broke, else True where one held, else None."""
    known = set(verdicts)
    return False if False in known else True if True in known else None


def _target(name: str, findings: Findings) -> TargetState:
    about = [fact for fact in findings.about if fact.target == name]
    laws: dict[str, dict[str, list[Judged]]] = {}
    for row in findings.judged:
        if row.target == name:
            laws.setdefault(row.law, {}).setdefault(row.dtype, []).append(row)
    return TargetState(
        kind=min(fact.kind for fact in about),
        profile=_loosest({fact.profile for fact in about}),
        laws={
            law: {dtype: _state(laws[law][dtype]) for dtype in sorted(laws[law])}
            for law in sorted(laws)
        },
        not_exercised=_features(about),
        tolerance=_largest(fact.tolerance for fact in about),
        graph=_largest(fact.graph for fact in about),
        allocation=_largest(fact.allocation for fact in about),
        ratios=_largest(fact.ratios for fact in about),
    )


def _state(rows: list[Judged]) -> LawState:
    numbers = [row.used for row in rows]
    worst = math.nan if any(map(math.isnan, numbers)) else max(numbers)
    return LawState(
        held=together(row.held for row in rows),
        examples=min(2**53, sum(row.examples for row in rows)),
        vacuous=min(2**53, sum(row.vacuous for row in rows)),
        refused=min(2**53, sum(row.refused for row in rows)),
        used=number(outward(worst)),
    )


def _features(about: Iterable[About]) -> dict[str, str]:
    found: dict[str, set[str]] = {}
    for fact in about:
        for feature, why in fact.not_exercised:
            found.setdefault(feature, set()).add(why)
        if fact.refuses_grouped:
            found.setdefault("grouped heads", set()).add("every grouped case is refused")
    return {feature: min(found[feature]) for feature in sorted(found)}


def _largest(parts: Iterable[Numbers]) -> dict[str, Number]:
    found: dict[str, float] = {}
    for part in parts:
        for name, value in part:
            # NaN hides nothing: it is kept whatever it meets.
            before = found.get(name, value)
            found[name] = math.nan if math.isnan(value + before) else max(before, value)
    return {name: number(found[name]) for name in sorted(found)}


def _loosest(profiles: set[str]) -> str:
    def place(name: str) -> tuple[int, str]:
        return (LOOSENING.index(name) if name in LOOSENING else len(LOOSENING), name)

    return max(profiles, key=place)


def to_text(baseline: Baseline) -> str:
    """The baseline as the text of its file."""
    return strict(msgspec.to_builtins(baseline))


def read_baseline(path: Path) -> Baseline:
    """The baseline in a file; raises InvalidRequest, in one line, for anything else."""
    try:
        text = read_bytes(path, most=LARGEST)
    except InvalidRequest as error:
        raise InvalidRequest(f"--baseline {error}; --update writes one") from None
    source = f"--baseline {path}"
    found = decoded(text, Baseline, SCHEMA, source=source, what="a baseline of `equivalence gate`")
    for name, target in found.targets.items():
        for row in (row for dtypes in target.laws.values() for row in dtypes.values()):
            real(row.used, f"{source}: {name}: used")
        for numbers in (target.tolerance, target.graph, target.allocation, target.ratios):
            _require_real(numbers, f"{source}: {name}")
    return found


def _require_real(numbers: Mapping[str, Any], where: str) -> None:
    for name, value in numbers.items():
        real(value, f"{where}: {name[:40]}")
