"""Check many backends in a few processes side by side, and hear of each one as it ends.

A process takes one backend after the other, so that what one of them imports, sets or compiles
costs the next one nothing. One that ends its process costs that process, and is named.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from equivalence.campaign.pools import processes
from equivalence.request import Progress, Report, Request, silent
from equivalence.results import TargetResult

if TYPE_CHECKING:
    from equivalence.cli.running import Session
    from equivalence.pairs import PairsResult

MOST_WORKERS: Final = 4  # each holds every runtime that it has met, about 2 GiB
PAIRS: Final = ""  # in the place of a name: every pair of formulations


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What every process is told: how hard to look, and the limits of one call."""

    request: Request
    facts: Mapping[str, Any]
    hunt: float | None
    database: Path | None
    seconds: float | None
    gib: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """What came of one backend, or of all pairs; failed: this program itself did."""

    result: TargetResult | None = None
    pairs: PairsResult | None = None
    failed: bool = False


def default_workers() -> int:
    """One for each processor that this process may use, and no more than memory bears."""
    allowed = getattr(os, "sched_getaffinity", None)
    count = len(allowed(0)) if allowed is not None else os.cpu_count() or 1
    return max(1, min(count, MOST_WORKERS))


def side_by_side(
    names: Sequence[str],
    asked: Asked,
    *,
    workers: int,
    progress: Report = silent,
    work: Callable[[tuple[str, Asked]], Examined] | None = None,
) -> Iterator[tuple[str, Examined]]:
    """Each name with what came of it, in the order in which they end.

    work: what a process does, which it imports by its name; by default it checks.
    """
    work = work or examined
    waiting, running = deque(names), dict[Future[Examined], str]()
    suspects: deque[str] = deque()
    pool = processes(workers)
    try:
        while waiting or running or suspects:
            # Those that ran when a process was lost are looked at again, one at a time.
            source, room = (waiting, workers) if waiting or running else (suspects, 1)
            while source and len(running) < room:
                name = source.popleft()
                running[pool.submit(work, (name, asked))] = name
            done = len(names) - len(waiting) - len(running) - len(suspects)
            shown = " and ".join(name or "pairs" for name in running.values())
            progress(Progress(target=shown, stage="search", done=done, total=len(names)))
            ended, _ = wait(running, return_when=FIRST_COMPLETED)
            lost = []
            for future in ended:
                name = running.pop(future)
                try:
                    yield name, future.result()
                except BrokenProcessPool:
                    lost.append(name)
            if lost:
                alone = source is suspects
                pool.mend()
                lost += running.values()
                running.clear()
                if alone or len(lost) == 1:
                    yield lost[0], Examined(result=_ended(lost[0]))
                else:
                    suspects += lost
        pool.finish()
    finally:
        pool.close()


def examined(given: tuple[str, Asked]) -> Examined:
    """In a process of the pool: check one backend, or compare every pair."""
    from equivalence.cli.opening import open_all
    from equivalence.cli.running import Session
    from equivalence.report.terminal import Printer
    from equivalence.threads import pin_threads

    pin_threads()
    name, asked = given
    session = Session(
        request=asked.request,
        printer=Printer(),
        facts=asked.facts,
        hunt=asked.hunt,
        database=asked.database,
    )
    try:
        if name == PAIRS:
            return Examined(pairs=session.pairs_of_formulations())
        (target,) = open_all([name], asked.facts, seconds=asked.seconds, gib=asked.gib)
        try:
            result = session.examine(target)
        finally:
            target.close()
        return Examined(result=result, failed=session.failed)
    finally:
        sys.stdout.flush()


def _ended(name: str) -> TargetResult:
    from equivalence.registry import entries

    text = f"its process ended; `equivalence check {name}` says more"
    return TargetResult(target=name, kind=entries()[name].kind, profile="", trouble=text)


def check_side_by_side(
    session: Session,
    names: Sequence[str],
    *,
    pairs: bool,
    workers: int,
    seconds: float | None,
    gib: float | None,
) -> None:
    """Check all of them, print what came of each, and of all pairs if they are asked for."""
    from equivalence.cli.progress import ProgressBar

    asked = Asked(
        request=session.request,
        facts=dict(session.facts),
        hunt=session.hunt,
        database=session.database,
        seconds=seconds,
        gib=gib,
    )
    place = {name: number for number, name in enumerate(names)}
    compared: PairsResult | None = None
    try:
        with ProgressBar() as progress:
            # The pairs take as long as many backends, so they are not left for the end.
            todo = [*names[:1], PAIRS, *names[1:]] if pairs else names
            for name, found in side_by_side(todo, asked, workers=workers, progress=progress):
                session.failed = session.failed or found.failed
                compared = found.pairs or compared
                if found.result is not None and name != PAIRS:
                    session.conclude(found.result)
    except KeyboardInterrupt:
        session.interrupted = True
    session.run.targets.sort(key=lambda result: place[result.target])
    if compared is not None:
        session.conclude_pairs(compared)
