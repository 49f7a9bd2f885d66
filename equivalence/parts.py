"""The search of a target in several formats, some of them in processes beside this one."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from concurrent.futures import BrokenExecutor, Future
from dataclasses import dataclass
from typing import Any, Final, Protocol

from equivalence.faults import add_fault
from equivalence.law_search import LawSearch
from equivalence.laws import law_named
from equivalence.outcome import Target
from equivalence.request import Progress, Report, Request
from equivalence.results import Failure, Shares
from equivalence.verdict import LawResult

PATIENCE: Final = 3.0  # seconds, after a Ctrl-C, for other processes to say what they know


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What is searched: a domain of one dtype, and the names of the laws."""

    domain: Any
    laws: tuple[str, ...]
    request: Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What came of some parts, as far as it goes: the results of their laws, and the faults."""

    laws: list[LawResult]
    shares: Shares
    failures: list[Failure]
    interrupted: bool = False


class Beside(Protocol):
    """Processes that open the same target, and take some of its parts."""

    @property
    def size(self) -> int:
        """How many there are."""
        ...

    def submit(self, parts: Sequence[Part], seconds: float | None) -> Future[Found]:
        """Search these parts, one after the other, in one of the processes."""
        ...

    def interrupt(self) -> None:
        """End every search soon, with what is known."""
        ...


def search_each(
    target: Target,
    parts: Sequence[Part],
    seconds: float | None,
    known: list[Failure],
    progress: Report,
) -> Found:
    """Search one part after the other; a fault that is ``known`` is not told again, new ones join.

    seconds: for all of them (None: as long as it takes). Ctrl-C ends it, and keeps what is known.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    laws: list[LawResult] = []
    shares, interrupted = Shares(), False
    for number, part in enumerate(parts):
        limit = None
        if deadline is not None:
            left = max(0.0, deadline - time.monotonic())
            limit = time.monotonic() + left / (len(parts) - number)
        asked = [law_named(name) for name in part.laws]
        hurried = False
        search = LawSearch(target, part.domain, asked, part.request, progress)
        try:
            search.explore(limit)
            hurried = limit is not None and time.monotonic() >= limit  # and not by shrinking
            search.shrink_failures(known)
        except KeyboardInterrupt:
            interrupted = True
            search.keep_unshrunk(known)
        results = search.results()
        if hurried and results and search.shares.cases < part.request.examples:
            reached = f"{search.shares.cases} of {part.request.examples} cases"
            text = f"{part.domain.dtypes[0]}: the time limit ended the search after {reached}"
            results[0].remarks[text] = 1
        laws += results
        shares.merge([search.shares])
        if interrupted:
            break
    return Found(laws=laws, shares=shares, failures=known, interrupted=interrupted)


def search_parts(
    target: Target,
    parts: Sequence[Part],
    seconds: float | None,
    known: list[Failure],
    progress: Report,
    beside: Beside | None = None,
) -> Found:
    """:func:`search_each`, with every second part (of more processes: third, ...) ``beside``.

    What a lost process was to search is searched here after all.
    """
    stride = 1 if beside is None else 1 + beside.size
    mine, *others = [parts[start::stride] for start in range(min(stride, len(parts)))]
    away = [] if beside is None else [(own, beside.submit(own, seconds)) for own in others]
    found = [search_each(target, mine, seconds, known, progress)]
    for own, future in away:
        assert beside is not None
        dtypes = " ".join(part.domain.dtypes[0] for part in own)
        progress(Progress(target=target.name, stage="search", dtype=dtypes))
        stopped = any(one.interrupted for one in found)
        try:
            theirs = _answer(future, beside, stopped=stopped)
        except BrokenExecutor:
            if stopped:
                continue
            theirs = search_each(target, own, seconds, known, progress)
            for law in theirs.laws[:1]:
                law.remarks[f"{dtypes}: searched again, the process that had it was lost"] = 1
        found.append(theirs)
        for failure in theirs.failures:
            add_fault(known, failure)
    order = [part.domain.dtypes[0] for part in parts]
    laws = [law for one in found for law in one.laws]
    return Found(
        laws=sorted(laws, key=lambda law: order.index(law.dtype)),
        shares=Shares().merge([one.shares for one in found]),
        failures=known,
        interrupted=any(one.interrupted for one in found),
    )


def _answer(future: Future[Found], beside: Beside, *, stopped: bool) -> Found:
    """What the process found; after a Ctrl-C, what it knows within a few seconds."""
    try:
        while not stopped:  # in short waits: a signal that another thread got is handled after one
            with contextlib.suppress(TimeoutError):
                return future.result(timeout=0.5)
    except KeyboardInterrupt:
        pass
    beside.interrupt()
    try:
        return future.result(timeout=PATIENCE)
    except TimeoutError:
        return Found(laws=[], shares=Shares(), failures=[], interrupted=True)
