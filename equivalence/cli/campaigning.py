"""What `equivalence campaign` does once its options are parsed."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from equivalence.campaign.coordinator import Campaign, Tally
from equivalence.campaign.ledger import Ledger, head_of, lines_of
from equivalence.campaign.plan import Plan, Planned, grouped, plan_of
from equivalence.campaign.pools import DaskPool, Pool, processes
from equivalence.campaign.shard import run_shard
from equivalence.campaign.sharing import SharedCases, shared_cases
from equivalence.cli.exits import BROKEN, CRASHED, HELD, INTERRUPTED, complain
from equivalence.errors import require
from equivalence.report.numbers import counted, percent
from equivalence.report.terminal import Printer, is_terminal


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The request of the command line."""

    targets: tuple[str, ...]
    hours: float | None
    shards: int | None
    examples: int
    laws_per_shard: int | None
    seed: int
    dtypes: tuple[str, ...] | None
    facts: Mapping[str, Any]
    laws: tuple[str, ...] | None
    seconds_per_call: float | None
    gib: float | None
    workers: int | None
    scheduler: str | None
    database: str | None


def run(asked: Asked, path: Path, *, resume: bool, html: str | None) -> int:
    """Start a campaign, or go on with one, and say what it found."""
    if resume:
        plan = plan_of(head_of(path).plan, source=str(path))
        if asked.shards is not None:
            plan = msgspec.structs.replace(plan, shards=asked.shards)
        require(
            asked.hours is not None or plan.shards > 0,
            f"{path} has no end of its own: say how long with --hours H",
        )
    else:
        require(not path.exists(), f"{path} is there already: --resume goes on with it")
        plan = plan_for(asked)
    place = asked.database or plan.database
    cases = shared_cases(place) if place else None
    pool: Pool = DaskPool(asked.scheduler) if asked.scheduler else processes(_workers(asked))
    try:
        ledger = Ledger.open(path, None if resume else msgspec.to_builtins(plan))
    except BaseException:
        pool.close()
        raise
    try:
        return _run(asked, plan, ledger, pool, cases, html)
    finally:
        ledger.close()


def _run(
    asked: Asked,
    plan: Plan,
    ledger: Ledger,
    pool: Pool,
    cases: SharedCases | None,
    html: str | None,
) -> int:
    printer = Printer()
    started, workers = time.monotonic(), pool.size
    deadline = None if asked.hours is None else started + 3600 * asked.hours
    with _status() as show:
        campaign = Campaign(
            plan=plan,
            ledger=ledger,
            pool=pool,
            work=run_shard,
            deadline=deadline,
            cases=cases,
            progress=show,
        )
        remarks: list[str] = []
        campaign.resume(lines_of(ledger.path, remarks.append))
        before = campaign.tally.worked
        stopped = False
        try:
            campaign.run()
        except KeyboardInterrupt:
            stopped = True
    wall = time.monotonic() - started
    tally = campaign.tally
    printer.lines(("quiet", text) for text in remarks)
    for (target, kind, text), replay in sorted(tally.faults.items()):
        printer.line(f"{target}: {kind}: {text}", "failure")
        printer.line(f"  {replay}")
    for shard, why in sorted(tally.lost.items()):
        printer.line(f"shard {shard}: {why}", "broken")
    printer.lines(
        ("broken", f"{target}: its turn did not come for every law: nothing was judged of the rest")
        for target in tally.unreached
    )
    if cases is not None:
        printer.lines(("quiet", text) for text in sorted(cases.remarks))
    share = percent((tally.worked - before) / max(1e-9, wall * workers))
    printer.line(
        f"{counted(tally.finished, 'shard')}"
        f"{f' and {tally.resumed} from before' if tally.resumed else ''}, "
        f"{counted(tally.checks, 'check')}, {counted(len(tally.faults), 'fault')}, "
        f"{counted(tally.retried, 'retry', 'retries')}; workers busy {share} of {wall:.0f} s",
        "held" if tally.held and not tally.lost else "broken",
    )
    if html is not None:
        from equivalence.cli.destination import write_whole
        from equivalence.report.page import page
        from equivalence.report.reading import read_merge

        write_whole("--html", html, page(read_merge([ledger.path])))
    if stopped:
        complain(f"interrupted; --resume goes on with {ledger.path}")
        return INTERRUPTED
    if tally.crashed:
        return CRASHED
    return HELD if tally.held and not tally.lost else BROKEN


def plan_for(asked: Asked) -> Plan:
    """The plan of a request; a wrong target or law is refused before anything runs."""
    from equivalence.cli.opening import open_all
    from equivalence.cli.validation import known_laws
    from equivalence.laws import all_laws, law_named
    from equivalence.replay import facts_text

    opened = open_all(asked.targets, asked.facts, seconds=asked.seconds_per_call, gib=asked.gib)
    planned = []
    for target in opened:
        kind = target.declaration.kind
        target.close()
        own = [name for name in asked.laws or () if law_named(name).kind == kind]
        if asked.laws and not own:
            known_laws(asked.laws, kind)
        laws = own or [law.name for law in all_laws(kind)]
        planned.append(Planned(target=target.name, groups=grouped(laws, asked.laws_per_shard)))
    return Plan(
        targets=planned,
        seed=asked.seed,
        examples=asked.examples,
        dtypes=list(asked.dtypes or ()),
        declare=facts_text(asked.facts),
        shards=asked.shards or 0,
        seconds_per_call=asked.seconds_per_call,
        gib=asked.gib,
        database=asked.database or "",
    )


def _workers(asked: Asked) -> int:
    if asked.workers is not None:
        return asked.workers
    here = getattr(os, "sched_getaffinity", None)
    return len(here(0)) if here is not None else os.cpu_count() or 1


@contextmanager
def _status() -> Iterator[Callable[[Tally], None]]:
    """One line on a terminal that says where the campaign stands; nothing elsewhere."""
    if not is_terminal(sys.stderr):
        yield lambda tally: None
        return
    from rich.console import Console

    color: Any = None if os.environ.get("NO_COLOR") else "auto"
    with Console(file=sys.stderr, color_system=color).status("starting") as status:

        def show(tally: Tally) -> None:
            status.update(
                f"{tally.finished + tally.resumed} shards, {tally.running} on their way, "
                f"{tally.checks:,} checks, {len(tally.faults)} faults"
            )

        yield show
