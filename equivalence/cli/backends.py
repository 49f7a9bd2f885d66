"""`equivalence backends`: what can be checked by name."""

from __future__ import annotations

from typing import Annotated

import typer

from equivalence.cli.options import Json
from equivalence.errors import require


def backends(
    *,
    brief: Annotated[
        bool, typer.Option("--brief", help="Names and availability only: nothing is imported.")
    ] = False,
    markdown: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the page of the documentation.")
    ] = None,
    json: Json = None,
) -> int:
    """List the registered backends: which are available here, and what they declare.

    \b
      equivalence backends
      equivalence backends --brief
      equivalence backends --json -
    """
    from equivalence.cli.destination import require_writable, stdout_kept_for, write_whole

    require_writable({"--markdown": markdown, "--json": json})
    if brief:
        written = [f"--{n}" for n, path in (("markdown", markdown), ("json", json)) if path]
        require(not written, f"--brief goes to the terminal only, and not to {', '.join(written)}")
        return _brief()
    from dataclasses import asdict

    from equivalence.backend_facts import backend_facts
    from equivalence.report.backends import backends_lines, backends_page, backends_table
    from equivalence.report.json import strict
    from equivalence.report.terminal import Printer

    with stdout_kept_for(json):
        facts = list(backend_facts())
        printer = Printer()
        printer.table(backends_table(facts))
        printer.lines(backends_lines(facts))
    if markdown is not None:
        write_whole("--markdown", markdown, backends_page(facts))
    if json is not None:
        rows = [asdict(one) for one in facts]
        write_whole("--json", json, strict({"schema": 1, "backends": rows}))
    return 0


def _brief() -> int:
    from equivalence.registry import entries
    from equivalence.report.tables import Table
    from equivalence.report.terminal import Printer

    rows = []
    for name, backend in entries().items():
        usable = backend.available()
        available, why = ("yes", "") if usable is True else ("no", str(usable))
        source = backend.distribution or "built in"
        rows.append((name, backend.kind, available, source if usable is True else why))
    headings = ("backend", "kind", "available", "from, or what is missing")
    Printer().table(Table(headings=headings, rows=tuple(rows)))
    return 0
