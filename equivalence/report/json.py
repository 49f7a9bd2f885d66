"""The report that machines read: schema 1, strict JSON, in which NaN and infinities are strings.

Keys are only ever added to a schema; a key that changes its meaning makes a new one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from equivalence.errors import InvalidRequest
from equivalence.replay import case_text
from equivalence.report.summary import LawSummary, law_summaries, sentence
from equivalence.results import Diagnosis, Failure, RunResult, TargetResult
from equivalence.verdict import Counterexample, LawResult, Trouble

SCHEMA: Final = 1
Number = float | str  # the strings are "NaN", "Infinity" and "-Infinity"


class DiagnosisJson(msgspec.Struct, frozen=True, kw_only=True):
    """The named mistake: ``kind`` is one of ``equivalence.results.DIAGNOSES``."""

    kind: str
    text: str


class CounterexampleJson(msgspec.Struct, frozen=True, kw_only=True):
    """The smallest case found: the worst element of the output, and the line that replays it."""

    case: str
    replay: str
    index: list[int]
    got: Number | None
    expected: Number | None
    used: Number | None
    error: Number | None = None
    allowed: Number | None = None
    outside: int = 0
    total: int = 0
    trouble: str = ""
    text: str = ""
    where: str = ""
    profile: str = ""


class DtypeJson(msgspec.Struct, frozen=True, kw_only=True):
    """One law in one dtype."""

    dtype: str
    held: bool | None
    examples: int
    vacuous: int
    refused: int
    used: Number


class LawJson(msgspec.Struct, frozen=True, kw_only=True):
    """One law over all dtypes; ``held`` is null when nothing non-vacuous was judged."""

    name: str
    held: bool | None
    examples: int
    vacuous: int
    refused: int
    counterexample: CounterexampleJson | None = None
    diagnosis: DiagnosisJson | None = None
    used: Number = 0.0
    dtypes: list[DtypeJson] = []
    reasons: dict[str, int] = {}
    remarks: dict[str, int] = {}


class FailureJson(msgspec.Struct, frozen=True, kw_only=True):
    """One fault, told once whatever the number of laws and dtypes that it breaks."""

    law: str
    dtype: str
    counterexample: CounterexampleJson
    diagnosis: DiagnosisJson
    script: str = ""


class TargetJson(msgspec.Struct, frozen=True, kw_only=True):
    """One target."""

    target: str
    kind: str
    held: bool | None
    profile: str
    laws: list[LawJson]
    tolerance: dict[str, Number]
    not_exercised: dict[str, str]
    timings: dict[str, Number]
    sentence: str = ""
    trouble: str = ""
    failures: list[FailureJson] = []
    card: list[str] = []
    shares: dict[str, Number] = {}
    remarks: dict[str, int] = {}
    refuses_grouped: bool = False
    isolated: bool = True
    interrupted: bool = False


class ReportJson(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run."""

    schema: int
    targets: list[TargetJson]
    environment: dict[str, Any]
    exit_code: int = 0
    interrupted: bool = False
    seconds: Number = 0.0


def report_of(run: RunResult) -> ReportJson:
    """The run as the structs of the schema."""
    return ReportJson(
        schema=SCHEMA,
        targets=[_target(target) for target in run.targets],
        environment=dict(run.environment),
        exit_code=run.exit_code,
        interrupted=any(target.interrupted for target in run.targets),
        seconds=number(run.seconds),
    )


def to_json(run: RunResult) -> str:
    """The report as indented strict JSON text that ends with a newline."""
    builtins = _finite(msgspec.to_builtins(report_of(run)))
    return msgspec.json.format(msgspec.json.encode(builtins), indent=2).decode() + "\n"


def from_json(text: str | bytes, *, source: str = "the report") -> ReportJson:
    """Read a report back; raises InvalidRequest, naming ``source``, when it is not one."""
    try:
        report = msgspec.json.decode(text, type=ReportJson)
    except msgspec.MsgspecError as error:
        raise InvalidRequest(f"{source} is not a report of `equivalence check`: {error}") from None
    if report.schema != SCHEMA:
        raise InvalidRequest(f"{source} has schema {report.schema}; this version reads {SCHEMA}")
    return report


def number(value: float) -> Number:
    """``value``, or the string that strict JSON needs for NaN and the infinities."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def plain(value: Number) -> float:
    """The float behind a :data:`Number`."""
    return float(value)


def _maybe(value: float | None) -> Number | None:
    return None if value is None else number(value)


def _finite(value: Any) -> Any:
    """Numbers of free-form parts (environment) get the same treatment as the typed ones."""
    if isinstance(value, float):
        return number(value)
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def _target(target: TargetResult) -> TargetJson:
    return TargetJson(
        target=target.target,
        kind=target.kind,
        held=target.held,
        profile=target.profile,
        laws=[_law(target, law) for law in law_summaries(target)],
        tolerance={name: number(value) for name, value in target.tolerance.items()},
        not_exercised=dict(target.not_exercised),
        timings={name: number(value) for name, value in target.timings.items()},
        sentence=sentence(target),
        trouble=target.trouble,
        failures=[
            FailureJson(
                law=failure.law,
                dtype=failure.dtype,
                counterexample=_counterexample(failure.case, failure.trouble, failure.replay),
                diagnosis=_diagnosis(failure.diagnosis),
                script=failure.script,
            )
            for failure in target.failures
        ],
        card=list(target.card),
        shares={name: number(value) for name, value in target.shares.summary().items()},
        remarks=dict(target.remarks),
        refuses_grouped=target.refuses_grouped,
        isolated=target.isolated,
        interrupted=target.interrupted,
    )


def _law(target: TargetResult, law: LawSummary) -> LawJson:
    found = _shown(target, law)
    return LawJson(
        name=law.name,
        held=law.held,
        examples=law.examples,
        vacuous=law.vacuous,
        refused=law.refused,
        counterexample=(
            None if found is None else _counterexample(found.case, found.trouble, found.replay)
        ),
        diagnosis=(
            None if found is None else _diagnosis(_diagnosis_for(target, law.name, found.trouble))
        ),
        used=number(law.used),
        dtypes=[_dtype(result) for result in law.dtypes],
        reasons=_summed(result.reasons for result in law.dtypes),
        remarks=_summed(result.remarks for result in law.dtypes),
    )


def _shown(target: TargetResult, law: LawSummary) -> Failure | Counterexample | None:
    """The counterexample of a broken law: that of its failure, else the first of its own."""
    if law.held is not False:
        return None
    own: list[Failure | Counterexample] = [f for f in target.failures if f.law == law.name]
    own += [found for result in law.dtypes for found in result.counterexamples]
    return own[0] if own else None


def _diagnosis_for(target: TargetResult, law: str, trouble: Trouble) -> Diagnosis:
    """The diagnosis of the fault behind a broken law; a fault is told once over all laws."""

    def unlikeness(failure: Failure) -> tuple[bool, bool]:
        return failure.law != law, failure.trouble.kind != trouble.kind

    if target.failures:
        return min(target.failures, key=unlikeness).diagnosis
    return Diagnosis(kind="unknown", text=trouble.text)


def _dtype(result: LawResult) -> DtypeJson:
    return DtypeJson(
        dtype=result.dtype,
        held=result.held,
        examples=result.examples,
        vacuous=result.vacuous,
        refused=result.refused,
        used=number(result.used),
    )


def _counterexample(case: Any, trouble: Trouble, replay: str) -> CounterexampleJson:
    return CounterexampleJson(
        case=case_text(case),
        replay=replay,
        index=list(trouble.index),
        got=_maybe(trouble.got),
        expected=_maybe(trouble.expected),
        used=_maybe(trouble.used),
        error=_maybe(trouble.error),
        allowed=_maybe(trouble.allowed),
        outside=trouble.outside,
        total=trouble.total,
        trouble=trouble.kind,
        text=trouble.text,
        where=trouble.where,
        profile=trouble.profile,
    )


def _diagnosis(diagnosis: Diagnosis) -> DiagnosisJson:
    return DiagnosisJson(kind=diagnosis.kind, text=diagnosis.text)


def _summed(counts: Any) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in counts:
        for name, times in part.items():
            total[name] = total.get(name, 0) + times
    return total
