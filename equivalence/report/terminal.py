"""Print the lines and tables of a report: with colours and boxes on a terminal, plain elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, TextIO

from equivalence.report.tables import (
    LETTER_MARKS,
    SIGNS,
    WORDS,
    Marks,
    Table,
    plain_table,
)
from equivalence.report.text import Shown

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

STYLES: Final = {
    "held": "bold green",
    "broken": "bold red",
    "nothing": "bold yellow",
    "failure": "red",
    "quiet": "dim",
}


class Printer:
    """Writes to one stream, in the way that suits where it ends.

    A terminal gets rich tables and colours (none when NO_COLOR is set or TERM is dumb). Anything
    else gets plain lines that are never wrapped, without colour, box or check marks.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = sys.stdout if stream is None else stream
        self._console: Console | None = None
        if is_terminal(self.stream):
            from rich.console import Console

            plain = bool(os.environ.get("NO_COLOR"))
            self._console = Console(
                file=self.stream, color_system=None if plain else "auto", highlight=False
            )

    @property
    def single_marks(self) -> Marks:
        """Marks for a table with a column of verdicts."""
        return SIGNS if self._signs else WORDS

    @property
    def packed_marks(self) -> Marks:
        """Marks of one character, for a table with a string of verdicts."""
        return SIGNS if self._signs else LETTER_MARKS

    @property
    def _signs(self) -> bool:
        encoding = (getattr(self.stream, "encoding", None) or "").lower()
        return self._console is not None and encoding.startswith("utf")

    def lines(self, lines: Iterable[Shown]) -> None:
        """Print styled lines; long ones (a case, a replay line) stay whole, to be copied."""
        for style, line in lines:
            text = _printable(line)
            if self._console is None:
                print(text, file=self.stream)
            elif style == "fact":
                self._fact(text)
            else:
                self._console.print(text, style=STYLES.get(style), markup=False, soft_wrap=True)
        self.stream.flush()

    def _fact(self, text: str) -> None:
        from rich.text import Text

        assert self._console is not None
        shown = Text(text)
        shown.stylize("cyan", 2, 12)
        self._console.print(shown, soft_wrap=True)

    def line(self, text: str = "", style: str = "") -> None:
        """Print one line."""
        self.lines([(style, text)])

    def table(self, table: Table) -> None:
        """Print a table and its notes."""
        if self._console is None:
            self.lines(("", line) for line in plain_table(table))
            return
        from rich.box import SIMPLE_HEAD
        from rich.table import Table as RichTable
        from rich.text import Text

        drawn = RichTable(box=SIMPLE_HEAD, pad_edge=False)
        for heading in table.headings:
            right = heading in table.right
            drawn.add_column(heading, justify="right" if right else "left", overflow="fold")
        for row in table.rows:
            drawn.add_row(*(_coloured(Text(cell)) for cell in row))
        self._console.print(drawn)
        self.lines(("quiet", note) for note in table.notes)


def is_terminal(stream: TextIO) -> bool:
    """Whether ``stream`` is a terminal that can do more than print."""
    try:
        return stream.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:  # closed
        return False


def _printable(line: str) -> str:
    """``line`` with control characters (a kernel's error text may hold some) spelled out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def _coloured(cell: Text) -> Text:
    cell.highlight_regex(SIGNS.held, "green")
    cell.highlight_regex(SIGNS.broken, "bold red")
    return cell
