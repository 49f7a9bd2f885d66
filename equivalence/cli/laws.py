"""`equivalence laws`: what every correct implementation has in common."""

from __future__ import annotations

from equivalence.cli.options import Kind


def laws(kind: Kind = None) -> int:
    """List the laws, each with the one sentence that it is.

    \b
      equivalence laws
      equivalence laws --kind attention
    """
    from equivalence.cli.validation import known_kind, known_laws
    from equivalence.laws import all_laws
    from equivalence.report.terminal import Printer

    known_laws(None, known_kind(kind))
    printer = Printer()
    for law in all_laws(known_kind(kind)):
        printer.lines([("held", law.name), ("", f"    {law.sentence}")])
    return 0
