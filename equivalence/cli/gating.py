"""Run what a baseline is about, the way it was run then."""

from __future__ import annotations

from typing import Any

from equivalence.cli.environment import environment
from equivalence.cli.opening import open_all
from equivalence.cli.running import Session
from equivalence.engine import Request
from equivalence.errors import InvalidRequest, require
from equivalence.gate.baseline import Baseline
from equivalence.gate.findings import Findings, findings_of
from equivalence.report.json import report_of
from equivalence.report.terminal import Printer


def run_now(baseline: Baseline | None) -> Findings:
    """Check the targets of the baseline with its seed and examples.

    Raises InvalidRequest where there is no baseline, or one of several runs, to say how.
    """
    if baseline is None:
        raise InvalidRequest("--update of no baseline needs the reports of a run: REPORT.json")
    require(
        len(baseline.runs) == 1,
        f"the baseline is the merge of {len(baseline.runs)} runs; give the reports of new ones",
    )
    (run,) = baseline.runs
    request = Request(seed=run.seed, examples=max(1, run.examples))
    session = Session(request=request, printer=Printer())
    limits: dict[str, Any] = {"seconds": None, "gib": None}
    for name in baseline.targets:
        try:
            (target,) = open_all([name], {}, **limits)
        except InvalidRequest as error:
            session.unavailable[name] = str(error)
            continue
        try:
            session.check(target)
        finally:
            target.close()
        if session.interrupted:
            raise KeyboardInterrupt
    if baseline.pairs:
        session.formulations()
    session.run.environment = environment(
        seed=request.seed, examples=request.examples, unavailable=session.unavailable
    )
    return findings_of(report_of(session.run, pairs=session.pairs))
