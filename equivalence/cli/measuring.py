"""Measure target after target for `equivalence tolerances`, and say what came out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from equivalence.cli.destination import write_whole
from equivalence.cli.environment import environment, processor
from equivalence.cli.exits import BROKEN, CRASHED, HELD
from equivalence.cli.opening import available, open_all
from equivalence.cli.progress import ProgressBar
from equivalence.errors import InvalidRequest
from equivalence.law_search import CRASHES
from equivalence.outcome import Target
from equivalence.replay import replay_line
from equivalence.report.numbers import percent, short
from equivalence.report.tables import Table
from equivalence.report.terminal import Printer
from equivalence.request import Progress
from equivalence.tolerances.drift import drifts
from equivalence.tolerances.measuring import (
    Broken,
    Measured,
    Measurement,
    Unmeasured,
    covered,
    trials_of,
)
from equivalence.tolerances.table import Entry, Tolerances, entry_of, table_of

HEADINGS: Final = ("backend", "dtype", "profile", "used", "k", "atol", "rtol", "defaults reject")


@dataclass(slots=True, kw_only=True)
class Run:
    """What is asked, and what has been found so far.

    absent: why a backend ("" for its dtype: all of them) could not be measured.
    """

    cases: int
    seed: int
    search: int
    dtypes: tuple[str, ...] | None
    facts: Mapping[str, Any]
    exit_code: int = HELD
    absent: dict[tuple[str, str], str] = field(default_factory=dict)
    printer: Printer = field(default_factory=Printer)

    def measure(self, named: Sequence[str] | None, old: Tolerances | None) -> Tolerances:
        """The table of every target; prints it, and a line for each that has none."""
        found: list[Measured] = []
        for target in self._targets(named, old):
            try:
                found += self._measured(target, old)
            finally:
                target.close()
        if found:
            self.printer.table(self._table(found))
        if not found and not self.exit_code:
            self._fail("nothing was measured")
        for (name, dtype), why in self.absent.items():
            if old is None:
                self.printer.line(
                    f"not measured: {' '.join((name, dtype)).strip()}: {why}", "quiet"
                )
        return table_of(
            found,
            cases=self.cases,
            seed=self.seed,
            search=self.search,
            environment=environment(processor=processor()),
            facts=self.facts,
        )

    def compare(self, old: Tolerances, new: Tolerances, *, partly: bool) -> None:
        """A line for each drift; the code is 1 where something got looser.

        partly: entries that were not asked for are not missed.
        """
        import msgspec

        if partly:
            kept = {
                name: {d: e for d, e in entries.items() if self.dtypes is None or d in self.dtypes}
                for name, entries in old.tolerance.items()
                if name in new.tolerance or any(name == n for n, _ in self.absent)
            }
            old = msgspec.structs.replace(old, tolerance=kept)
        found = drifts(old, new, absent=self.absent)
        for change in found:
            if change.looser:
                self._fail(f"looser: {change.text}")
            else:
                self.printer.line(f"to lock in: {change.text}", "quiet")
        if not any(change.looser for change in found):
            entries = sum(len(entries) for entries in new.tolerance.values())
            self.printer.line(f"no drift in {entries} entries", "held")

    def write(self, path: Path, text: str) -> None:
        """Write the table, unless some target does not hold."""
        if self.exit_code:
            self.printer.line(f"{path} was not written", "broken")
            return
        write_whole("--write", str(path), text)
        self.printer.line(f"{path} written", "held")

    def _targets(self, named: Sequence[str] | None, old: Tolerances | None) -> Iterator[Target]:
        limits: dict[str, Any] = {"seconds": None, "gib": None}
        if named is not None and old is None:
            yield from open_all(named, self.facts, **limits)
            return
        unavailable: dict[str, str] = {}
        kinds = {self.facts["kind"]} if "kind" in self.facts else None
        names = named if named is not None else available(kinds, unavailable)
        for name in names:
            try:
                (target,) = open_all([name], self.facts, **limits)
            except InvalidRequest as error:
                self.absent[name, ""] = str(error)
                continue
            yield target
        self.absent |= {(name, ""): why for name, why in unavailable.items()}

    def _measured(self, target: Target, old: Tolerances | None) -> Iterator[Measured]:
        known = None if old is None else old.tolerance.get(target.name)
        asked = self.dtypes or (None if known is None else tuple(known))
        try:
            domain = trials_of(target, asked)
        except InvalidRequest as error:
            self.absent[target.name, ""] = str(error)
            return
        for dtype in asked or domain.dtypes:
            if dtype not in domain.dtypes:
                self.absent[target.name, dtype] = f"it takes no {dtype}"
                continue
            try:
                with ProgressBar() as bar:

                    def show(done: int, total: int, bar: Any = bar, dtype: str = dtype) -> None:
                        where: dict[str, Any] = {"dtype": dtype, "done": done, "total": total}
                        bar(Progress(target=target.name, stage="search", **where))

                    measurement = Measurement(target, dtype, domain)
                    yield measurement.measured(
                        cases=self.cases, seed=self.seed, search=self.search, progress=show
                    )
            except Unmeasured as error:
                self.absent[target.name, dtype] = str(error)
            except Broken as error:
                self._broken(target, dtype, error)

    def _broken(self, target: Target, dtype: str, error: Broken) -> None:
        self.absent[target.name, dtype] = f"it does not hold: {error.trouble.text}"
        replay = replay_line(target.name, error.case, self.facts, error.law)
        self._fail(f"{target.name} {dtype} does not hold: {error.trouble.text}: {replay}")
        if error.trouble.kind in CRASHES:
            self.exit_code = CRASHED

    def _fail(self, text: str) -> None:
        self.printer.line(text, "broken")
        self.exit_code = self.exit_code or BROKEN

    def _table(self, found: Sequence[Measured]) -> Table:
        rows = tuple(_row(measured, entry_of(measured)) for measured in found)
        worst = max(found, key=lambda measured: measured.used)
        notes = [
            f"used: the largest of {self.cases} independent cases, seed {self.seed}; "
            f"{percent_of(covered(self.cases))} of all cases stay below it, with 95% confidence",
            "k, atol, rtol: |error| <= k u sum p|v|, and what assert_close needs beside its own "
            "rtol, where queries, keys and values are standard normal numbers, without biases",
            f"worst case: {replay_line(worst.backend, worst.worst, self.facts, worst.law)}",
        ]
        searched = [m for m in found if m.searched is not None and m.k is not None]
        if searched:
            hardest = max(searched, key=lambda measured: measured.searched_k)
            line = replay_line(hardest.backend, hardest.searched, self.facts, hardest.law)
            notes.append(
                f"a search found an error of {short(hardest.searched_k)} u sum p|v|: {line}"
            )
        return Table(
            headings=HEADINGS, rows=rows, right=frozenset(HEADINGS[3:]), notes=tuple(notes)
        )


def percent_of(share: float) -> str:
    """A share near one, never rounded up: ``99.7%``."""
    return f"{int(share * 1000) / 10:g}%"


def _row(measured: Measured, entry: Entry) -> tuple[str, ...]:
    def shown(number: float | None) -> str:
        return "" if number is None else short(number)

    rejects = "" if entry.defaults_reject is None else percent(entry.defaults_reject)
    return (
        measured.backend,
        measured.dtype,
        measured.profile,
        shown(entry.used),
        shown(entry.k),
        shown(entry.atol),
        "" if entry.rtol is None else f"{entry.rtol:g}",
        rejects,
    )
