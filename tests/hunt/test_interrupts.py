"""A Ctrl-C that lands where Python drops exceptions ends the search all the same."""

from __future__ import annotations

import subprocess
import sys
import textwrap

LOST = """
    import os, signal
    from hypothesis import strategies as st
    from equivalence.interrupts import interrupts_remembered
    from equivalence.search import explore

    visited = []

    class Dropped:  # what a finaliser raises is dropped, as in a callback of the collector
        def __del__(self):
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(1000):
                pass

    def visit(case):
        visited.append(case)
        if len(visited) == 1:
            Dropped()

    try:
        with interrupts_remembered():
            explore(st.integers(), visit, examples=50, seed=0)
    except KeyboardInterrupt:
        print("interrupted after", len(visited))
    explore(st.integers(), visit, examples=2, seed=0)  # what was taken is forgotten
    print("then", len(visited))
"""


def test_an_interrupt_that_was_dropped_ends_the_search() -> None:
    command = [sys.executable, "-c", textwrap.dedent(LOST)]
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "KeyboardInterrupt" in finished.stderr  # Python says that it ignores one
    assert finished.stdout == "interrupted after 1\nthen 3\n"
