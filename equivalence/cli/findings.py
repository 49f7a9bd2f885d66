"""`equivalence findings`: what was found in released runtimes, and whether it is still so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from equivalence.findings import Finding


def findings(
    name: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Only these. None: all of them.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Only those that take less than a few seconds.")
    ] = False,
    list_only: Annotated[bool, typer.Option("--list", help="Run nothing.")] = False,
    show: Annotated[
        bool, typer.Option("--script", help="Print the stand-alone script, and run nothing.")
    ] = False,
    json: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write the results as JSON; - for standard output."),
    ] = None,
) -> int:
    """Run every finding of the register again, each in a process of its own.

    \b
      equivalence findings
      equivalence findings torch-nan-key-becomes-zero
      equivalence findings torch-nan-key-becomes-zero --script > report.py
      equivalence findings --quick --json -

    Exit code 0: each that could run is as the register says. 1: one is fixed, or shows something
    else, and its entry is out of date; or none could run. 2: the request was wrong, or the runtime
    of one that was named is not installed.
    """
    from equivalence.cli.destination import require_writable, stdout_kept_for, write_whole
    from equivalence.cli.exits import BROKEN, HELD
    from equivalence.findings import finding_named, register, rerun
    from equivalence.report.terminal import Printer

    chosen = [finding_named(one) for one in name or register()]
    if quick:
        chosen = [finding for finding in chosen if not finding.slow]
    require_writable({"--json": json})
    if show:
        print("\n".join(finding.script for finding in chosen), end="")
        return HELD
    rows: list[dict[str, Any]] = []
    with stdout_kept_for(json):
        printer = Printer()
        for finding in chosen:
            row: dict[str, Any] = {
                "name": finding.name,
                "title": finding.title,
                "kind": finding.kind,
                "found_in": ", ".join(f"{n} {v}" for n, v in finding.runtime.items()),
                "expected": finding.expected,
                "upstream": finding.upstream or None,
            }
            if list_only:
                row["got"] = finding.got
                printer.lines([("", f"{finding.name}: {finding.title}")])
            else:
                status = rerun(finding)
                row |= {
                    "status": status.word,
                    "installed": status.installed or None,
                    "got": status.got or None,
                    "as_recorded": status.as_recorded,
                }
                printer.lines([(_style(status.word), _line(row))])
            rows.append(row)
        out_of_date = [row["name"] for row in rows if not row.get("as_recorded", True)]
        if out_of_date:
            printer.lines([("broken", f"out of date: {', '.join(out_of_date)}")])
        absent = [finding for finding, row in zip(chosen, rows, strict=True)
                  if row.get("status") == "not installed"]  # fmt: skip
        if not rows:
            printer.lines([("broken", "nothing ran: each of these takes more than --quick allows")])
        if absent and not name:
            some = len(absent) < len(rows)
            text = f"{len(absent)} of {len(rows)} could not run: their runtime is not installed"
            printer.lines([("quiet" if some else "broken", text)])
    if json is not None:
        write_whole("--json", json, _as_json(rows))
    if absent and name:
        from equivalence.errors import InvalidRequest

        raise InvalidRequest("; ".join(f"{one.name}: {_missing(one)}" for one in absent))
    nothing_ran = not list_only and len(absent) == len(rows)
    return BROKEN if out_of_date or nothing_ran else HELD


def _missing(finding: Finding) -> str:
    return f"{finding.installed()} not installed: pip install {' '.join(finding.runtime)}"


def _style(word: str) -> str:
    return {"still so": "held", "fixed": "broken", "changed": "broken"}.get(word, "quiet")


def _line(row: dict[str, Any]) -> str:
    found = f"{row['status']:<13}  {row['name']} ({row['installed'] or row['found_in']})"
    if row["status"] == "changed":
        return f"{found}: got {row['got']}"
    return found


def _as_json(rows: list[dict[str, Any]]) -> str:
    from json import dumps

    return dumps({"schema": 1, "findings": rows}, indent=2) + "\n"
