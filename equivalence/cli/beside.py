"""Share the dtypes of one target with processes that open it too.

Each of them runs the target the way this one does: in a worker process of its own, unless it is
one of our own backends.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from equivalence.campaign.pools import follow_parent, processes
from equivalence.dtypes import DTYPES
from equivalence.interrupts import interrupts_only_remembered
from equivalence.outcome import Target
from equivalence.parts import Found, Part
from equivalence.request import Request

# Of fewer cases, or in less time, another process takes longer to start than it saves.
WORTH_A_PROCESS: Final = 60
WORTH_SECONDS: Final = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """How a target is opened: its text, what is declared on top, and the limits of one call."""

    text: str
    facts: Mapping[str, Any]
    seconds: float | None
    gib: float | None


class OtherProcesses:
    """So many processes that wait for parts of one target."""

    def __init__(self, size: int, opening: Opening) -> None:
        self.size: Final = size
        self._opening: Final = opening
        self._pool: Final = processes(size, _begin)

    def submit(self, parts: Sequence[Part], seconds: float | None) -> Future[Found]:
        """Search these parts, one after the other, in one of the processes."""
        ours = tuple(name for name in sys.modules if name.startswith("equivalence."))
        return self._pool.submit(_search, (self._opening, tuple(parts), seconds, ours))

    def interrupt(self) -> None:
        """End every search soon, with what is known."""
        self._pool.interrupt()

    def close(self) -> None:
        """Let the processes end; one that is still at work is ended after a while."""
        self._pool.finish()


@contextmanager
def other_processes(
    target: Target, request: Request, opening: Opening, workers: int, limit: float | None = None
) -> Iterator[OtherProcesses | None]:
    """As many as there are dtypes to share out among ``workers``, this one among them; or None.

    None where the search is short, or each new shape costs as much as a search. limit: the seconds
    of the search, if it has any.
    """
    declared = target.declaration
    dtypes = request.dtypes or declared.dtypes or DTYPES
    size = min(workers, len(dtypes)) - 1
    whole = request.laws is None and request.examples >= WORTH_A_PROCESS
    whole = whole and (limit is None or limit >= WORTH_SECONDS)
    if size < 1 or not whole or declared.costly:
        yield None
        return
    others = OtherProcesses(size, opening)
    try:
        yield others
    finally:
        others.close()


def _begin() -> None:
    follow_parent()
    interrupts_only_remembered()


def _search(given: tuple[Opening, tuple[Part, ...], float | None, tuple[str, ...]]) -> Found:
    from equivalence.cli.opening import open_all
    from equivalence.parts import search_each
    from equivalence.request import silent
    from equivalence.threads import pin_threads

    pin_threads()
    opening, parts, seconds, ours = given
    for name in ours:  # Hypothesis draws numbers that stand in modules that are imported, too:
        importlib.import_module(name)  # the same cases, whoever searches
    (target,) = open_all([opening.text], opening.facts, seconds=opening.seconds, gib=opening.gib)
    try:
        return search_each(target, parts, seconds, [], silent)
    finally:
        target.close()
