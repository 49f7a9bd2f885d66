"""`equivalence backends`: what can be checked by name."""

from __future__ import annotations


def backends() -> int:
    """List the registered backends: which are available here, and what the others need.

    \b
      equivalence backends
    """
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
