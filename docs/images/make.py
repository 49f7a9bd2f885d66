"""Draw the README's terminal picture from a real run: `python docs/images/make.py`."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
COMMAND = (
    "equivalence check examples/tiled_heads.py:attention "
    "--declare causal=upper_left --dtype bfloat16"
)
COLUMNS, ROWS = 100, 60


def recorded() -> str:
    """What the command prints on a terminal of ``COLUMNS`` columns, with its colours."""
    primary, secondary = pty.openpty()
    executable = Path(sys.executable).with_name("equivalence")
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "LINES": str(ROWS), "TERM": "xterm"}
    process = subprocess.Popen(
        [str(executable), *COMMAND.split()[1:]],
        cwd=ROOT,
        env=environment,
        stdin=secondary,
        stdout=secondary,
        stderr=subprocess.DEVNULL,
    )
    os.close(secondary)
    pieces = []
    while True:
        try:
            piece = os.read(primary, 1 << 16)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        pieces.append(piece)
    process.wait()
    return b"".join(pieces).decode().replace("\r\n", "\n")


def main() -> None:
    """Write terminal.svg."""
    console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(Text(f"$ {COMMAND}\n", style="bold"))
    console.print(Text.from_ansi(recorded()))
    console.save_svg(str(HERE / "terminal.svg"), title="equivalence check")


if __name__ == "__main__":
    main()
