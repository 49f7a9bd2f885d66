"""Which faults of a target are told: the known ones, broken promises, and each one once."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any, Final

from equivalence.declaration import KnownFault
from equivalence.kinds import kind_named
from equivalence.laws import Law, all_laws
from equivalence.outcome import Target
from equivalence.replay import replay_line
from equivalence.results import Diagnosis, Failure, TargetResult
from equivalence.search import SHRINK_SECONDS, polish, size_of
from equivalence.trials import Trials
from equivalence.verdict import POISONED, Trouble

CRASHES: Final = {"died": "crash", "hung": "hang", "memory": "memory"}


def known_fault(target: Target, law: str, trouble: str, case: Any) -> KnownFault | None:
    """The declared fault that explains this trouble under this law on ``case``, if there is one."""
    faults = target.declaration.known_faults
    return next((fault for fault in faults if fault.explains(law, trouble, case)), None)


def outdated_faults(target: Target, domain: Any, laws: Sequence[Law]) -> list[Failure]:
    """Declared faults whose case no longer shows them: each is a failure of the declaration."""
    subject = kind_named(target.declaration.kind).subject(target, domain)
    gone = []
    for fault in target.declaration.known_faults:
        law = next((law for law in laws if law.name == fault.law), None)
        if law is None or fault.case.dtype not in domain.dtypes:
            continue
        trouble = law.check(fault.case, subject).trouble
        if trouble is None or trouble.kind != fault.trouble:
            text = f"a known fault is gone, remove its entry: {fault.note}"
            gone.append(
                Failure(
                    law=fault.law,
                    dtype=fault.case.dtype,
                    case=fault.case,
                    trouble=Trouble(kind="declaration", text=text),
                    diagnosis=Diagnosis(kind="unknown", text=text),
                    replay=replay_line(target.name, fault.case, law=fault.law),
                )
            )
    return gone


def diagnosis_of(subject: Any, law: str, case: Any, trouble: Trouble) -> Diagnosis:
    """The name of the mistake, as the kind of the target finds it."""
    diagnose = kind_named(subject.target.declaration.kind).diagnose
    if diagnose is None:
        return Diagnosis(kind="unknown", text=trouble.text)
    return diagnose(subject, law, case, trouble)


def _smallest_crash(target: Target, trials: Trials, law: Law, kind: str, case: Any) -> Any:
    """The simplest case that ends the process as ``case`` did: trials call one of middling size."""
    subject = kind_named(target.declaration.kind).subject(target, trials.domain)

    def crashes(simpler: Any) -> bool:
        if target.supports(simpler) is not True:
            return False
        trouble = law.check(simpler, subject).trouble
        return trouble is not None and trouble.kind == kind

    return polish(case, crashes, deadline=time.monotonic() + SHRINK_SECONDS)


def note_trials(target: Target, trials: Trials, result: TargetResult) -> None:
    """Crashes in trials and refused declarations are failures with their tiny case."""
    law = all_laws(result.kind)[0]
    agreement = law.name
    unknown = [
        (CRASHES[outcome.status], tried, outcome)
        for tried, outcome in trials.crashes
        if known_fault(target, agreement, CRASHES[outcome.status], tried) is None
    ]
    for kind, tried, outcome in unknown[:1]:
        case = tried if kind == "hang" else _smallest_crash(target, trials, law, kind, tried)
        result.failures.append(
            Failure(
                law=agreement,
                dtype=case.dtype,
                case=case,
                trouble=Trouble(kind=kind, text=outcome.text),
                diagnosis=Diagnosis(kind="crash", text=outcome.text),
                replay=replay_line(target.name, case),
            )
        )
    for case, text in trials.contradictions:
        result.failures.append(
            Failure(
                law=agreement,
                dtype=case.dtype,
                case=case,
                trouble=Trouble(kind="declaration", text=text),
                diagnosis=Diagnosis(kind="refusal", text=text),
                replay=replay_line(target.name, case),
            )
        )
    refuses = trials.refuses_grouped or trials.one_group_only
    if refuses and ("enable_gqa" in target.options or target.declaration.grouped):
        which = "every grouped case" if trials.refuses_grouped else "more than one group of heads"
        text = f"{which} was refused: " + trials.not_exercised.get("grouped heads", "")
        case = kind_named(result.kind).case_type(num_kv_heads=2, group_size=2)
        result.failures.append(
            Failure(
                law=agreement,
                dtype=case.dtype,
                case=case,
                trouble=Trouble(kind="refusal", text=text),
                diagnosis=Diagnosis(kind="refusal", text=text),
                replay=replay_line(target.name, case),
            )
        )


def add_fault(known: list[Failure], failure: Failure) -> bool:
    """Add a fault that is not known yet; ``known`` is told the simplest first."""
    if any(same_fault(failure, other) for other in known):
        return False
    known.append(failure)
    known.sort(key=_told)
    return True


def _told(failure: Failure) -> tuple[Any, ...]:
    """The order of a report: wrong numbers before what NaN shows, and the smallest case first."""
    return (failure.trouble.kind in POISONED, *size_of(failure.case))


def same_fault(one: Failure, other: Failure) -> bool:
    """Whether one failure says nothing that the other does not say already."""
    kind = one.diagnosis.kind
    if kind != other.diagnosis.kind:
        return False
    if kind == "unknown":
        return one.law == other.law
    if kind == "crash":
        return one.trouble.text == other.trouble.text
    same_case = one.law == other.law and one.case.but(dtype=other.dtype) == other.case
    bare = one.trouble.error is not None and one.diagnosis.text == one.trouble.text
    return same_case or bare or _gist(one.diagnosis) == _gist(other.diagnosis)


def _gist(diagnosis: Diagnosis) -> str:
    """What it says, without what depends on the case: how many of how many keys, or how far off.

    Of a precision, that is which profile accepts it.
    """
    if diagnosis.kind != "precision":
        return re.sub(r": \d+ of \d+$", "", diagnosis.text)
    return re.sub(r"up to \S+ times", "beyond", diagnosis.text)
