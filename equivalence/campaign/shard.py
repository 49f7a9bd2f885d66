"""Do the work of one shard: JSON in, one line of the ledger out, and no exception ever."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from equivalence.campaign.ledger import LineJson, RawJson
from equivalence.campaign.plan import Shard
from equivalence.report.schema import (
    CounterexampleJson,
    DiagnosisJson,
    FailureJson,
    LawJson,
    ReportJson,
    TargetJson,
)
from equivalence.threads import pin_threads

if TYPE_CHECKING:
    from equivalence.outcome import Target
    from equivalence.results import TargetResult

INTERRUPTED: Final = "interrupted"
ONCE: Final = "it failed once, and not when it was looked at again"


def run_shard(text: str) -> str:
    """The line of the ledger for the shard in ``text``; what went wrong is in its ``lost``."""
    pin_threads()
    start = time.perf_counter()
    shard = msgspec.json.decode(text, type=Shard)
    try:
        line = _line(shard)
    except Exception as error:  # told in the ledger, where the rest of the campaign goes on
        said = " ".join(str(error).split())[:500]
        line = LineJson(
            shard=shard.id,
            report=empty_report(),
            seconds=0.0,
            lost=f"{type(error).__name__}: {said}",
        )
    seconds = time.perf_counter() - start
    return msgspec.json.encode(msgspec.structs.replace(line, seconds=seconds)).decode()


def empty_report() -> ReportJson:
    """A report of nothing."""
    return ReportJson(schema=1, targets=[], environment={})


def _line(shard: Shard) -> LineJson:
    from equivalence.declaration import parse_facts
    from equivalence.engine import check_target
    from equivalence.environment import environment
    from equivalence.isolation.opening import open_target
    from equivalence.isolation.supervise import GIB, Limits
    from equivalence.replay import parse_case
    from equivalence.report.json import report_of
    from equivalence.request import Request
    from equivalence.results import RunResult

    limits = Limits()
    if shard.seconds_per_call is not None:
        limits = replace(limits, seconds=shard.seconds_per_call)
    if shard.gib is not None:
        limits = replace(limits, memory=int(shard.gib * GIB))
    facts = parse_facts(shard.declare) if shard.declare else {}
    request = Request(
        examples=shard.examples,
        seconds=shard.seconds,
        seed=shard.seed,
        dtypes=tuple(shard.dtypes) or None,
        laws=tuple(shard.laws),
        first=tuple(parse_case(case) for case in shard.first),
        shrink=bool(shard.explains),
    )
    target = open_target(shard.target, facts=facts, limits=limits)
    try:
        result = check_target(target, request)
    finally:
        target.close()
    _with_facts(target, result, facts)
    bounded = {} if shard.seconds is None else {"seconds": shard.seconds}
    here = environment(seed=shard.seed, examples=shard.examples, **bounded)
    report = report_of(RunResult(targets=[result], environment=here, facts=facts))
    if shard.explains:
        return _explanation(shard, report, result)
    return LineJson(
        shard=shard.id,
        report=_searched(report, result),
        seconds=0.0,
        found=[
            RawJson(
                law=failure.law,
                dtype=failure.dtype,
                case=_text(failure.case),
                trouble=failure.trouble.kind,
                diagnosis=failure.diagnosis.kind,
            )
            for failure in result.failures
        ],
        lost=INTERRUPTED if result.interrupted else "",
    )


def _searched(report: ReportJson, result: TargetResult) -> ReportJson:
    """Verdicts and counts; faults are told by the shard that shrinks them."""
    replays = {(failure.law, failure.dtype): failure.replay for failure in result.failures}
    for law in result.laws:
        for found in law.counterexamples:
            replays.setdefault((law.law, law.dtype), found.replay)
    (target,) = report.targets
    laws = [
        msgspec.structs.replace(
            law,
            counterexample=None,
            diagnosis=None,
            seconds=0.0,
            dtypes=[
                msgspec.structs.replace(row, worst=replays.get((law.name, row.dtype), row.worst))
                for row in law.dtypes
            ],
        )
        for law in target.laws
    ]
    kept = msgspec.structs.replace(target, laws=laws, failures=[], timings={})
    return msgspec.structs.replace(report, targets=[kept], seconds=0.0)


def _explanation(shard: Shard, report: ReportJson, result: TargetResult) -> LineJson:
    """The faults alone: what is judged here was counted where it was found."""
    (target,) = report.targets
    failures = list(target.failures)
    if not failures:
        (case,) = shard.first
        replay = _replay(shard, case)
        shown = CounterexampleJson(
            case=case, replay=replay, index=[], got=None, expected=None, used=None, text=ONCE
        )
        failures = [
            FailureJson(
                law=shard.laws[0],
                dtype=shard.dtypes[0] if shard.dtypes else "",
                counterexample=shown,
                diagnosis=DiagnosisJson(kind="unknown", text=ONCE),
            )
        ]
    kept = msgspec.structs.replace(
        target, laws=list[LawJson](), failures=failures, shares={}, held=False
    )
    return LineJson(
        shard=shard.id,
        report=_only(report, kept),
        seconds=0.0,
        explains=[shard.explains],
        lost=INTERRUPTED if result.interrupted else "",
    )


def _only(report: ReportJson, target: TargetJson) -> ReportJson:
    return msgspec.structs.replace(report, targets=[target], seconds=0.0)


def _replay(shard: Shard, case: str) -> str:
    from equivalence.declaration import parse_facts
    from equivalence.replay import parse_case, replay_line

    facts = parse_facts(shard.declare) if shard.declare else {}
    return replay_line(shard.target, parse_case(case), facts, shard.laws[0])


def _with_facts(target: Target, result: TargetResult, facts: dict[str, Any]) -> None:
    """Replay lines that repeat the declared facts."""
    from equivalence.replay import replay_line

    if not facts:
        return
    result.failures = [
        replace(f, replay=replay_line(target.name, f.case, facts, f.law)) for f in result.failures
    ]
    for law in result.laws:
        law.counterexamples = [
            replace(found, replay=replay_line(target.name, found.case, facts, law.law))
            for found in law.counterexamples
        ]


def _text(case: Any) -> str:
    from equivalence.replay import case_text

    return case_text(case)
