"""Judge one case by itself, and show it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from equivalence.errors import InvalidRequest
from equivalence.faults import diagnosis_of
from equivalence.kinds import Kind, kind_named
from equivalence.laws import Law, all_laws, law_named
from equivalence.outcome import Target
from equivalence.replay import replay_line
from equivalence.report.eye import tensor_lines
from equivalence.report.terminal import Printer
from equivalence.report.text import target_lines
from equivalence.results import Failure, RunResult, TargetResult
from equivalence.verdict import Counterexample, LawResult, refused


def replay_case(
    target: Target, case: Any, laws: tuple[str, ...] | None, facts: Mapping[str, Any]
) -> int:
    """Judge ``case`` by ``laws`` (None: every law that speaks about it) and print what is found."""
    kind = _kind_of(target, case)
    if kind.domain_of is not None:
        domain = kind.domain_of(target, case)
    else:
        domain = kind.trials(target, (case.dtype,)).domain
    subject = kind.subject(target, domain)
    result = TargetResult(
        target=target.name, kind=kind.name, profile=subject.profile(case.dtype).name
    )
    for law in _asked(kind, laws, case, domain):
        _judge(law, case, subject, result, replay_line(target.name, case, facts, law.name))
    printer = Printer()
    printer.lines(target_lines(result))
    if kind.name == "attention":
        printer.lines(("", line) for line in _by_eye(subject, case))
    ramp = getattr(case, "values", "") == "ramp"
    printer.lines(("quiet", line) for line in _unjudged(result, ramp))
    return RunResult(targets=[result]).exit_code


def _kind_of(target: Target, case: Any) -> Kind:
    kind = kind_named(target.declaration.kind)
    if not isinstance(case, kind.case_type):
        raise InvalidRequest(
            f"{target.name} is of kind {kind.name}, which takes {kind.case_type.__name__}, "
            f"not a {type(case).__name__}"
        )
    return kind


def _asked(kind: Kind, laws: tuple[str, ...] | None, case: Any, domain: Any) -> list[Law]:
    """The laws that were named, or those that speak about the case as it stands."""
    if laws is not None:
        return [law_named(name) for name in laws]
    return [law for law in all_laws(kind.name) if law.adapt(case, domain) == case]


def _judge(law: Law, case: Any, subject: Any, result: TargetResult, replay: str) -> None:
    supported = subject.target.supports(case)
    if supported is True:
        verdict = law.check(case, subject)
    else:
        verdict = refused(str(supported) or "excluded by its author")
    row = LawResult(law=law.name, dtype=case.dtype, used=verdict.used)
    row.vacuous = int(verdict.status == "vacuous")
    row.examples = int(verdict.status in ("held", "broken"))
    if verdict.status == "refused":
        row.refused, row.reasons = 1, {verdict.reason: 1}
    if verdict.trouble is not None:
        found = Counterexample(case=case, trouble=verdict.trouble, replay=replay)
        row.counterexamples.append(found)
        _tell_once(law, found, subject, result)
    result.laws.append(row)


def _tell_once(law: Law, found: Counterexample, subject: Any, result: TargetResult) -> None:
    """One failure for one cause, however many laws it breaks."""
    diagnosis = diagnosis_of(subject, law.name, found.case, found.trouble)
    if all(failure.diagnosis != diagnosis for failure in result.failures):
        result.failures.append(
            Failure(
                law=law.name,
                dtype=found.case.dtype,
                case=found.case,
                trouble=found.trouble,
                diagnosis=diagnosis,
                replay=found.replay,
            )
        )


def _by_eye(subject: Any, case: Any) -> list[str]:
    inputs = subject.inputs(case)
    outcome = subject.call(inputs)
    output = None if outcome.stored is None else outcome.output
    shown = {
        "query": inputs.query,
        "key": inputs.key,
        "value": inputs.value,
        "mask": inputs.mask,
        "output": output,
        "expected": subject.exact(inputs).output,
    }
    return list(tensor_lines(shown, case.dtype))


def _unjudged(result: TargetResult, ramp: bool) -> list[str]:
    return [line for law in result.laws for line in _reasons(law, ramp)]


def _reasons(law: LawResult, ramp: bool) -> list[str]:
    if law.vacuous:
        alike = ' (all keys hold the same; values="steps" tells them apart)' if ramp else ""
        return [f"{law.law}: vacuous, the bound covers every value that could have come out{alike}"]
    return [f"{law.law}: refused: {reason}" for reason in law.reasons]
