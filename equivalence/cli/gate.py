"""`equivalence gate`: a run, or the merge of several, against a committed baseline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from equivalence.cli.options import Xfails


def gate(
    report: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="REPORT.json",
            help="Reports of `check --json`, of one run or of its shards. None: run now.",
        ),
    ] = None,
    *,
    baseline: Annotated[Path, typer.Option(metavar="FILE", help="What was accepted before.")],
    update: Annotated[
        bool, typer.Option("--update", help="Accept what is found: write it into the baseline.")
    ] = False,
    xfails: Xfails = None,
) -> int:
    """Fail whatever got looser than the baseline: 1, with one line for each change.

    \b
      equivalence gate --baseline baseline.json --update report.json
      equivalence gate --baseline baseline.json shard-*.json
      equivalence gate --baseline baseline.json
    """
    import datetime

    from equivalence.cli.destination import require_writable, write_whole
    from equivalence.cli.exits import BROKEN, HELD
    from equivalence.gate.baseline import baseline_of, read_baseline, to_text
    from equivalence.gate.expecting import with_xfails
    from equivalence.gate.findings import read_findings
    from equivalence.gate.rules import compare
    from equivalence.report.numbers import counted
    from equivalence.report.terminal import Printer
    from equivalence.xfails import read_xfails

    expected = read_xfails(xfails)
    old = read_baseline(baseline) if baseline.exists() or not update else None
    if update:
        require_writable({"--baseline": baseline})
    if report:
        found = read_findings(report)
    else:
        from equivalence.cli.gating import run_now

        found = run_now(old)
    found = with_xfails(found, expected, datetime.date.today())
    printer = Printer()
    changes = [] if old is None else compare(old, found)
    looser = [change for change in changes if change.looser]
    for change in changes:
        if change.looser:
            words, style = ("accepted", "quiet") if update else ("looser", "broken")
            printer.line(f"{words}: {change.text}", style)
        else:
            printer.line(f"{'locked in' if update else 'to lock in'}: {change.text}", "quiet")
    if update:
        stopped = [fact.target for fact in found.about if fact.interrupted]
        if stopped or not found.about:
            printer.line(
                f"{baseline} was not written: nothing ran, or it was interrupted", "broken"
            )
            return BROKEN
        write_whole("--baseline", str(baseline), to_text(baseline_of(found)))
        printer.line(f"{baseline} written", "held")
        return BROKEN if found.complaints else HELD
    if looser:
        return BROKEN
    tighter = f"; --update locks in {counted(len(changes), 'change')}" if changes else ""
    printer.line(f"nothing is looser than {baseline}{tighter}", "held")
    return HELD
