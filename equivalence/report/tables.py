"""The tables of a report as plain rows; how they are drawn is up to ``plain`` and ``terminal``."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from equivalence.report.numbers import count, short
from equivalence.report.summary import LawSummary, law_summaries
from equivalence.results import TargetResult

LETTERS: Final = string.ascii_lowercase + string.ascii_uppercase


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """How a verdict is drawn in one place of a table."""

    held: str
    broken: str
    nothing: str
    known: str
    limited: str

    def of(self, law: LawSummary | None) -> str:
        """The mark of one law."""
        if law is None or (law.held is None and not law.known):
            return self.nothing
        if law.held is False:
            return self.broken
        if law.known:
            return self.known
        return self.limited if law.limited else self.held

    @property
    def key(self) -> str:
        """What the marks mean, in one line."""
        return (
            f"{self.held} held  {self.broken} broken  {self.known} known fault  "
            f"{self.nothing} nothing judged"
        )


SIGNS: Final = Marks(held="✓", broken="✗", nothing="–", known="!", limited="~")
LETTER_MARKS: Final = Marks(held="+", broken="X", nothing="-", known="!", limited="~")
WORDS: Final = Marks(held="held", broken="BROKEN", nothing="-", known="known", limited="limited")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of text under headings; ``right`` names the columns whose numbers align right."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()


def law_table(target: TargetResult, marks: Marks) -> Table:
    """One target: a row for each law."""
    rows = [
        (
            law.name,
            marks.of(law),
            count(law.examples),
            count(law.vacuous),
            count(law.refused),
            short(law.used) if law.held is not None else "",
        )
        for law in law_summaries(target)
    ]
    headings = ("law", "held", "cases", "vacuous", "refused", "worst used")
    return Table(headings=headings, rows=tuple(rows), right=frozenset(headings[2:]))


def backend_table(targets: Sequence[TargetResult], marks: Marks) -> Table:
    """Several targets: a row for each, and in it one mark for each law."""
    names = list(dict.fromkeys(law.law for target in targets for law in target.laws))
    rows = []
    for target in targets:
        laws = {law.name: law for law in law_summaries(target)}
        rows.append(
            (
                target.target,
                "".join(marks.of(laws.get(name)) for name in names),
                count(sum(law.examples for law in laws.values())),
                _worst(list(laws.values())),
                target.profile,
            )
        )
    headings = ("target", LETTERS[: len(names)], "cases", "worst", "profile")
    limited = any(marks.of(law) == marks.limited for t in targets for law in law_summaries(t))
    notes = (*_legend(names), marks.key + f"  {marks.limited} limited: most refused" * limited)
    right = frozenset(("cases", "worst"))
    return Table(headings=headings, rows=tuple(rows), right=right, notes=notes)


def plain_table(table: Table) -> list[str]:
    """The table as lines of ASCII columns, two spaces apart."""
    widths = [max(map(len, column)) for column in zip(table.headings, *table.rows, strict=True)]
    lines = []
    for row in (table.headings, *table.rows):
        cells = [
            cell.rjust(width) if heading in table.right else cell.ljust(width)
            for heading, cell, width in zip(table.headings, row, widths, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return [*lines, *table.notes]


def _worst(laws: list[LawSummary]) -> str:
    judged = [law.used for law in laws if law.held is not None]
    return short(max(judged)) if judged else ""


def _legend(names: Sequence[str], width: int = 76) -> list[str]:
    """``a agrees-with-float64  b within-hull`` in as many lines as it takes."""
    lines = [""]
    for letter, name in zip(LETTERS, names, strict=False):
        piece = f"{letter} {name}"
        if lines[-1] and len(lines[-1]) + 2 + len(piece) > width:
            lines.append("")
        lines[-1] += ("  " if lines[-1] else "") + piece
    return lines
