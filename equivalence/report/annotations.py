"""Faults as workflow commands, which GitHub shows beside the files of a pull request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from equivalence.report.merging import Merge
from equivalence.report.numbers import counted
from equivalence.report.views import targets

MOST: Final = 10  # that GitHub shows of one kind from one step


def error_commands(merge: Merge) -> Iterator[str]:
    """One line a fault, ten at most: the last one says how many more there are."""
    found = list(_all(merge))
    if len(found) > MOST:
        more = counted(len(found) - MOST + 1, "more fault")
        found[MOST - 1 :] = [_command("", "attention equivalence", f"{more}: see the report")]
    yield from found


def _all(merge: Merge) -> Iterator[str]:
    for text in sorted(merge.complaints):
        yield _command("", "expected failures", text)
    for shown in targets(merge):
        file, _, attribute = shown.name.rpartition(":")
        file = file if file.endswith(".py") else ""
        for fault in shown.faults:
            title = f"{attribute if file else shown.name}: {fault.kind}"
            yield _command(file, title, f"{fault.text}\n{fault.shown.replay}")
    for (first, second), pair in sorted(merge.pairs.items()):
        if pair.held is False:
            yield _command("", "a pair is apart", f"{first} and {second}\n{pair.replay}")


def _command(file: str, title: str, message: str) -> str:
    place = f"file={_property(file)},line=1," if file else ""
    return f"::error {place}title={_property(title)}::{_message(message)}"


def _message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")
