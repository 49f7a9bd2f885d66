"""`equivalence laws`: what every correct implementation has in common."""

from __future__ import annotations

from equivalence.cli.options import Kind


def laws(kind: Kind = None) -> int:
    """List the laws, each with the one sentence that it is.

    \b
      equivalence laws
      equivalence laws --kind rotary
    """
    from equivalence.cli.validation import known_kind, known_laws
    from equivalence.laws import LAWS
    from equivalence.report.terminal import Printer

    known_laws(None, None if kind is None else known_kind(kind))
    printer = Printer()
    for law in LAWS.values():
        if kind in (None, law.kind):
            about = "" if law.kind == "attention" else f" ({law.kind})"
            printer.lines([("held", law.name + about), ("", f"    {law.sentence}")])
    return 0
