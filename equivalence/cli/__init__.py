"""The `equivalence` command: one small module for each of its commands.

Everything that takes time to import is imported by the command that needs it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    from equivalence.interrupts import interrupts_remembered

    with interrupts_remembered():
        sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return its exit code (see ``equivalence.cli.exits``)."""
    from equivalence.threads import pin_threads

    pin_threads()
    from equivalence.cli.app import call
    from equivalence.cli.exits import guarded

    for stream in (sys.stdout, sys.stderr):
        # A kernel's error text may hold what the terminal's encoding does not.
        getattr(stream, "reconfigure", lambda **_: None)(errors="backslashreplace")
    return guarded(lambda: call(list(arguments)))
