"""The report that machines read: strict JSON, in which NaN and infinities are strings."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from equivalence.errors import InvalidRequest
from equivalence.replay import case_text, replay_line
from equivalence.report.pairs import odd_ones
from equivalence.report.schema import (
    SCHEMA,
    AxisJson,
    CallsJson,
    CounterexampleJson,
    DiagnosisJson,
    DisagreementJson,
    DtypeJson,
    FailureJson,
    LawJson,
    Number,
    PairJson,
    ReportJson,
    TargetJson,
)
from equivalence.report.summary import LawSummary, law_summaries, sentence
from equivalence.results import Diagnosis, Failure, RunResult, TargetResult
from equivalence.verdict import Counterexample, LawResult, Trouble

if TYPE_CHECKING:
    from equivalence.pairs import Edge, PairsResult

ShapeT = TypeVar("ShapeT")


def report_of(
    run: RunResult,
    *,
    pairs: PairsResult | None = None,
    exit_code: int | None = None,
    complaints: Sequence[str] = (),
    axes: Sequence[AxisJson] = (),
    disagreements: Sequence[DisagreementJson] = (),
) -> ReportJson:
    """The run as the structs of the schema; ``exit_code`` where it is not that of the results."""
    return ReportJson(
        schema=SCHEMA,
        targets=[_target(target, run.facts) for target in run.targets],
        environment=dict(run.environment),
        pairs=[] if pairs is None else [_pair(edge) for edge in pairs.edges],
        odd=[] if pairs is None else odd_ones(pairs),
        exit_code=run.exit_code if exit_code is None else exit_code,
        interrupted=any(target.interrupted for target in run.targets),
        seconds=number(run.seconds),
        complaints=list(complaints),
        axes=list(axes),
        disagreements=list(disagreements),
    )


def to_json(
    run: RunResult,
    *,
    pairs: PairsResult | None = None,
    exit_code: int | None = None,
    complaints: Sequence[str] = (),
    axes: Sequence[AxisJson] = (),
    disagreements: Sequence[DisagreementJson] = (),
) -> str:
    """The report as indented strict JSON text that ends with a newline."""
    return report_text(
        report_of(
            run,
            pairs=pairs,
            exit_code=exit_code,
            complaints=complaints,
            axes=axes,
            disagreements=disagreements,
        )
    )


def report_text(report: ReportJson) -> str:
    """A report as indented strict JSON text that ends with a newline."""
    return strict(msgspec.to_builtins(report))


def strict(value: Any) -> str:
    """Plain dicts, lists, numbers and strings as indented strict JSON text."""
    return msgspec.json.format(msgspec.json.encode(_finite(value)), indent=2).decode() + "\n"


def from_json(text: str | bytes, *, source: str = "the report") -> ReportJson:
    """Read a report back; raises InvalidRequest, naming ``source``, when it is not one."""
    return decoded(text, ReportJson, SCHEMA, source=source, what="a report of `equivalence check`")


class _Schema(msgspec.Struct):
    schema: int


def decoded(
    text: str | bytes, shape: type[ShapeT], schema: int, *, source: str, what: str
) -> ShapeT:
    """``text`` as a ``shape``; raises InvalidRequest, in one line, for anything else.

    Another schema is told before anything that it may have changed.
    """
    try:
        found = msgspec.json.decode(text, type=_Schema).schema
        if found != schema:
            newer = ", which a newer version wrote" if found > schema else ""
            shown = found if abs(found) < 10**9 else "a huge number"
            raise InvalidRequest(f"{source} has schema {shown}{newer}; this version reads {schema}")
        return msgspec.json.decode(text, type=shape)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        said = " ".join(str(error).split())[:200]
        raise InvalidRequest(f"{source} is not {what}: {said}") from None


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


def _target(target: TargetResult, facts: Mapping[str, Any]) -> TargetJson:
    return TargetJson(
        target=target.target,
        kind=target.kind,
        held=target.held,
        profile=target.profile,
        laws=[_law(target, law, facts) for law in law_summaries(target)],
        tolerance={name: number(value) for name, value in target.tolerance.items()},
        not_exercised=dict(target.not_exercised),
        timings={name: number(value) for name, value in _times(target).items()},
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
        limited=number(target.limited),
        isolated=target.isolated,
        interrupted=target.interrupted,
    )


def _law(target: TargetResult, law: LawSummary, facts: Mapping[str, Any]) -> LawJson:
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
        known=law.known,
        seconds=number(law.seconds),
        dtypes=[_dtype(target.target, result, facts) for result in law.dtypes],
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


def _times(target: TargetResult) -> dict[str, float]:
    """What the engine measured, and the median call of each law in each dtype."""
    calls = {
        f"{law.law} {law.dtype}: median call": statistics.median(law.times)
        for law in target.laws
        if law.times
    }
    return {**target.timings, **calls}


def _calls(times: Sequence[float]) -> CallsJson | None:
    if not times:
        return None
    return CallsJson(
        calls=len(times), minimum=number(min(times)), median=number(statistics.median(times))
    )


def _dtype(target: str, result: LawResult, facts: Mapping[str, Any]) -> DtypeJson:
    worst = result.worst_case
    return DtypeJson(
        dtype=result.dtype,
        held=result.held,
        examples=result.examples,
        vacuous=result.vacuous,
        refused=result.refused,
        used=number(result.used),
        timing=_calls(result.times),
        histogram=list(result.histogram),
        worst="" if worst is None else replay_line(target, worst, facts, result.law),
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


def _pair(edge: Edge) -> PairJson:
    judged = edge.compared - edge.vacuous
    found = None
    if edge.trouble is not None:
        replay = replay_line(edge.first, edge.case)
        found = _counterexample(edge.case, edge.trouble, replay)
    return PairJson(
        first=edge.first,
        second=edge.second,
        held=False if edge.broken else True if judged else None,
        compared=edge.compared,
        vacuous=edge.vacuous,
        equal=edge.equal,
        broken=edge.broken,
        used=number(edge.used),
        counterexample=found,
    )


def _diagnosis(diagnosis: Diagnosis) -> DiagnosisJson:
    return DiagnosisJson(kind=diagnosis.kind, text=diagnosis.text)


def _summed(counts: Any) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in counts:
        for name, times in part.items():
            total[name] = total.get(name, 0) + times
    return total
