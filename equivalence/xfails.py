"""Failures that a repository expects, each with a reason and a date: ``equivalence-xfails.txt``.

    # target             | law                 | reason                    | expires
    kernels.py:flash     | visible-nan-is-kept | acme/kernels#123          | 2027-03-31
    torch.sdpa           | causality[bfloat16] | fixed in the next release | 2027-01-15

An entry that has expired, that no longer fails or that matches nothing fails the run.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from equivalence.bounded import read_text
from equivalence.dtypes import DTYPES
from equivalence.errors import InvalidRequest, require
from equivalence.results import Failure, TargetResult
from equivalence.verdict import LawResult

FILE: Final = "equivalence-xfails.txt"
LARGEST: Final = 2**20  # bytes
FIELDS: Final = "TARGET | LAW or LAW[DTYPE] | REASON | YYYY-MM-DD"
EXPECTED: Final = "expected failure until "


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """One entry; ``dtype`` "" stands for all, ``line`` is where it stands in the file.

    folder: of the file, from which a path in ``target`` starts.
    """

    target: str
    law: str
    reason: str
    expires: datetime.date
    dtype: str = ""
    line: int = 0
    folder: Path = field(default_factory=Path)

    def is_about(self, *names: str) -> bool:
        """Whether one of these is the name of its target."""
        own = canonical(self.target, self.folder)
        return any(canonical(name) == own for name in names)

    def covers(self, law: str, dtype: str) -> bool:
        """Whether a failure of ``law`` in ``dtype`` is expected; not a matter of the date."""
        return self.law == law and self.dtype in ("", dtype)

    @property
    def note(self) -> str:
        """What a report says beside the law."""
        return f"{EXPECTED}{self.expires}: {self.reason}"

    @property
    def name(self) -> str:
        """The entry, in the words of its line."""
        law = f"{self.law}[{self.dtype}]" if self.dtype else self.law
        return f"line {self.line}, {self.target} | {law}"


def canonical(target: str, folder: Path | None = None) -> str:
    """The same text for the same target: a file by its absolute path, seen from ``folder``."""
    place, colon, attribute = target.rpartition(":")
    if colon and place.endswith(".py"):
        return f"{((folder or Path()) / Path(place).expanduser()).resolve()}:{attribute}"
    return target


def read_xfails(path: Path | None) -> tuple[Expected, ...]:
    """The entries of a file; of ``equivalence-xfails.txt`` in this folder, if any, for None.

    Raises InvalidRequest, in one line with the number of the line, for a file that is none.
    """
    source = Path(FILE) if path is None else path
    if path is None and not source.is_file():
        return ()
    text = read_text(source, most=LARGEST, name=f"--xfails {source}")
    return parse_xfails(text, source=str(source), folder=source.parent)


def parse_xfails(
    text: str, *, source: str = FILE, folder: Path | None = None
) -> tuple[Expected, ...]:
    """The entries of ``text``; empty lines and those that start with # say nothing."""
    found: dict[tuple[str, str, str], Expected] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        entry = replace(_entry(line, number, f"{source} line {number}"), folder=folder or Path())
        key = (canonical(entry.target, folder), entry.law, entry.dtype)
        require(
            key not in found,
            f"{source} line {number} repeats line {found[key].line if key in found else 0}",
        )
        found[key] = entry
    return tuple(found.values())


def _entry(line: str, number: int, where: str) -> Expected:
    fields = [field.strip() for field in line.split("|")]
    require(len(fields) == 4 and all(fields), f"{where} is not {FIELDS}: {line.strip()[:80]!r}")
    target, what, reason, date = fields
    match = re.fullmatch(r"([^\[\]\s]+)(?:\[(\w+)\])?", what)
    require(match is not None, f"{where}: {what!r} is not LAW or LAW[DTYPE]")
    assert match is not None
    law, dtype = match[1], match[2] or ""
    require(dtype in ("", *DTYPES), f"{where}: dtype {dtype!r} is not one of {', '.join(DTYPES)}")
    try:
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}", date) is None:
            raise ValueError
        expires = datetime.date.fromisoformat(date)
    except ValueError:
        raise InvalidRequest(f"{where}: {date!r} is not a date, YYYY-MM-DD") from None
    return Expected(
        target=target, law=law, dtype=dtype, reason=reason, expires=expires, line=number
    )


def complaint(entry: Expected, why: str) -> str:
    """One line about an entry."""
    return f"{FILE} {entry.name}: {why}"


def expired(entries: Iterable[Expected], today: datetime.date) -> list[str]:
    """A line for each entry whose date has passed."""
    return [
        complaint(entry, f"expired on {entry.expires} ({entry.reason})")
        for entry in entries
        if entry.expires < today
    ]


def apply_xfails(
    result: TargetResult, entries: Iterable[Expected], today: datetime.date
) -> list[str]:
    """Take the expected failures out of ``result``; a line for each entry that fails no longer.

    They stay visible: the law is shown as held, with the reason beside it. An entry that has
    expired excuses nothing.
    """
    valid = [entry for entry in entries if entry.expires >= today]
    own = [entry for entry in valid if entry.is_about(result.target)]
    used: set[Expected] = set()
    excused: list[Failure] = []

    def entry_for(law: str, dtype: str) -> Expected | None:
        return next((e for e in own if e.covers(law, dtype)), None)

    for failure in list(result.failures):
        entry = entry_for(failure.law, failure.dtype)
        if entry is not None:
            used.add(entry)
            excused.append(failure)
            result.failures.remove(failure)
    for row in result.laws:
        entry = entry_for(row.law, row.dtype)
        if entry is not None and row.held is False:
            used.add(entry)
            row.known, row.broken, row.counterexamples = entry.note, 0, []
    _told_by_others(result, excused)
    if result.interrupted:
        return []
    return [
        complaint(entry, "no longer fails, remove it")
        for entry in own
        if entry not in used and _judged(result.laws, entry)
    ]


def _told_by_others(result: TargetResult, excused: list[Failure]) -> None:
    """A fault is told once over all laws; where its law is excused, another one tells it."""
    if result.failures or not excused:
        return
    for row in result.laws:
        for found in row.counterexamples[:1]:
            alike = [f for f in excused if f.trouble.kind == found.trouble.kind] or excused
            told = replace(
                alike[0],
                law=row.law,
                dtype=row.dtype,
                case=found.case,
                trouble=found.trouble,
                replay=found.replay,
            )
            result.failures.append(told)
            return


def _judged(rows: Iterable[LawResult], entry: Expected) -> bool:
    return any(entry.covers(row.law, row.dtype) and row.examples for row in rows)


def unmatched(
    entries: Iterable[Expected], targets: Collection[tuple[str, str]], *, whole: bool = False
) -> list[str]:
    """A line for each entry that matches nothing.

    targets: (name, kind) of what was run. whole: nothing else exists, as in a gate; otherwise an
    entry may be about a target that was not asked for, as long as there is one of that name.
    """
    from equivalence.laws import LAWS

    kinds = {canonical(name): kind for name, kind in targets}
    found = []
    for entry in entries:
        law, kind = LAWS.get(entry.law), kinds.get(canonical(entry.target, entry.folder))
        if law is None:
            found.append(complaint(entry, f"matches nothing: there is no law {entry.law}"))
        elif kind is not None and kind != law.kind:
            why = f"matches nothing: {entry.law} is about {law.kind}, the target is {kind}"
            found.append(complaint(entry, why))
        elif kind is None and (whole or not _exists(entry)):
            found.append(complaint(entry, f"matches nothing: there is no target {entry.target}"))
    return found


def _exists(entry: Expected) -> bool:
    from equivalence.resolve import resolve

    try:
        resolved = resolve(canonical(entry.target, entry.folder))
    except InvalidRequest:
        return False
    if resolved.form != "file":
        return True
    # Whatever makes it, a name that can be imported from a file stands in its text.
    text = Path(resolved.place).read_text(encoding="utf-8", errors="replace")
    return resolved.attribute.partition(".")[0] in text
