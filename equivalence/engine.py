"""Check one target: try its features, search all laws at once, shrink and name what breaks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from equivalence.calling import timed
from equivalence.faults import note_trials, outdated_faults
from equivalence.kinds import kind_named
from equivalence.laws import Law, all_laws, law_named
from equivalence.outcome import Outcome, Target
from equivalence.parts import Beside, Part, search_parts
from equivalence.request import Progress, Report, Request, silent
from equivalence.results import TargetResult

__all__ = ["Progress", "Report", "Request", "check_target"]


NO_OPTION: Final = (
    "never given, as it is no option by that name; if it is one by another, declare it: "
    "options={'sinks': 'sink_logits'}"
)


def check_target(
    target: Target,
    request: Request | None = None,
    progress: Report = silent,
    *,
    beside: Beside | None = None,
) -> TargetResult:
    """Check every law on ``target``; Ctrl-C ends the search and keeps what is known.

    beside: processes that take some of the dtypes.
    """
    request = request or Request()
    target = timed(target) if request.timings else target
    result = TargetResult(
        target=target.name,
        kind=target.declaration.kind,
        profile=target.declaration.profile or "eager",
    )
    deadline = None if request.seconds is None else time.monotonic() + request.seconds
    progress(Progress(target=target.name, stage="trials"))
    trials = kind_named(result.kind).trials(target, request.dtypes)
    result.not_exercised = trials.not_exercised
    for parameter in getattr(target, "unknown_parameters", ()):
        result.not_exercised[f"parameter {parameter}"] = NO_OPTION
    result.refuses_grouped = trials.refuses_grouped
    laws = [law_named(n) for n in request.laws] if request.laws else list(all_laws(result.kind))
    try:
        if trials.base is None:
            text = trials.not_exercised.get("anything", "no tiny case worked")
            result.trouble = f"every tiny case was refused: {text}"
        elif not trials.domain.dtypes:
            # Each format was refused, and yet the first call, in one of them, was answered.
            again = trials.not_exercised.get(f"dtype {trials.base.dtype}", "no answer")
            text = f"a case that worked fails in a later call: {again}"
            trials.crashes.insert(0, (trials.base, Outcome(status="died", text=text)))
            result.not_exercised, result.refuses_grouped = {"anything": text}, False
        else:
            domain = trials.domain.but(long_context=request.long_context)
            if request.head_layouts is not None:
                domain = domain.but(head_layouts=request.head_layouts)
            _search_all(target, domain, laws, request, deadline, result, progress, beside)
    except KeyboardInterrupt:
        result.interrupted = True
    note_trials(target, trials, result)
    return result


def _search_all(
    target: Target,
    domain: Any,
    laws: Sequence[Law],
    request: Request,
    deadline: float | None,
    result: TargetResult,
    progress: Report,
    beside: Beside | None,
) -> None:
    identify = kind_named(target.declaration.kind).identify
    # A card takes some 30 calls of as many shapes.
    hurried = request.seconds is not None and target.declaration.costly
    if identify is not None and not hurried:
        progress(Progress(target=target.name, stage="probes"))
        result.card = identify(target, domain, domain.dtypes[0])
    parts = [
        Part(
            domain=domain.but(dtypes=(dtype,)),
            laws=tuple(law.name for law in laws),
            request=request,
        )
        for dtype in domain.dtypes
    ]
    seconds = None if deadline is None else deadline - time.monotonic()
    known = outdated_faults(target, domain, laws)
    found = search_parts(target, parts, seconds, known, progress, beside)
    result.laws, result.interrupted = found.laws, found.interrupted
    result.shares.merge([found.shares])
    # Read in the wrong order, no other number, shape or exception means anything.
    result.failures = [f for f in known if f.diagnosis.kind == "layout"] or known
    for law in result.laws:
        for reason, count in law.remarks.items():
            result.remarks[reason] = result.remarks.get(reason, 0) + count
