"""`equivalence report`: runs as a page, as Markdown or as annotations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from equivalence.cli.options import Html


def report(
    run: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN.json...",
            help="Reports of `check`, `compare` and `audit`, and ledgers of `campaign`.",
        ),
    ],
    *,
    html: Html = None,
    markdown: Annotated[
        str | None,
        typer.Option(metavar="FILE|-", help="Write a summary in Markdown, of 1 MiB at most."),
    ] = None,
    annotations: Annotated[
        bool, typer.Option("--annotations", help="Print a GitHub annotation for each fault.")
    ] = False,
) -> int:
    """Show runs, or the merge of several, in whatever order; nothing is run.

    \b
      equivalence report run.json --html report.html
      equivalence report shard-*.json --markdown "$GITHUB_STEP_SUMMARY" --annotations
      equivalence report ledger.jsonl --html report.html

    Exit codes: 0 however the runs ended; 2 for a file that is no run.
    """
    from equivalence.cli.destination import require_writable, stdout_kept_for, write_whole
    from equivalence.report.reading import read_merge
    from equivalence.report.terminal import Printer
    from equivalence.report.views import headline, targets

    require_writable({"--html": html, "--markdown": markdown})
    merge = read_merge(run)
    # Files first: a reader of what is printed may leave, as `head` does.
    if html is not None:
        from equivalence.report.page import page

        write_whole("--html", html, page(merge))
    if markdown is not None:
        from equivalence.report.markdown import markdown as summary

        write_whole("--markdown", markdown, summary(merge))
    with stdout_kept_for(markdown):
        state, sentence = headline(merge)
        printer = Printer()
        printer.line(sentence, state if state in ("held", "broken") else "nothing")
        for shown in targets(merge):
            for fault in shown.faults:
                printer.line(f"{shown.name}: {fault.kind}: {fault.text}", "failure")
                printer.line(f"  {fault.shown.replay}")
        printer.lines(("quiet", text) for text in sorted(merge.remarks))
        if annotations:
            from equivalence.report.annotations import error_commands

            for line in error_commands(merge):
                print(line)
    return 0
