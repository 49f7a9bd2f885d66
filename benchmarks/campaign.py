"""What a campaign costs beside the work of its shards, and what a second worker adds.

    python benchmarks/campaign.py [--seconds 30] [--shards 4] [--workers 1,2]

Every shard does the same work for about so many seconds of CPU, in a real campaign with a ledger
on disk and processes of this machine. The overhead is the part of the workers' time, from the
first shard handed out to the last one written down, in which no shard ran; the start of the worker
processes is left out and told apart. Two workers are compared with one by shards a second.
Figures on the wall say something only on cores that nothing else uses: the load is printed.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec

from equivalence.campaign.coordinator import Campaign
from equivalence.campaign.ledger import Ledger, LineJson
from equivalence.campaign.plan import Plan, Planned, Shard
from equivalence.campaign.pools import ExecutorPool, processes
from equivalence.report.schema import DtypeJson, LawJson, ReportJson, TargetJson

LAWS = [f"law-{number}" for number in range(20)]


def work(seconds: float, text: str) -> str:
    """A shard that uses the processor for so long, and answers as a real one does."""
    shard = msgspec.json.decode(text, type=Shard)
    started, cpu = time.monotonic(), time.process_time()
    while time.process_time() - cpu < seconds:
        sum(range(10_000))
    rows = [
        DtypeJson(
            dtype=dtype, held=True, examples=200, vacuous=0, refused=0, used=0.5,
            histogram=[9] * 16, worst="equivalence replay it 'AttentionCase(kv_len=9)'",
        )
        for dtype in ("float32", "float16", "bfloat16", "float64")
    ]  # fmt: skip
    laws = [
        LawJson(name=name, held=True, examples=800, vacuous=0, refused=0, dtypes=rows)
        for name in shard.laws
    ]
    target = TargetJson(
        target=shard.target, kind="attention", held=True, profile="f32", laws=laws, tolerance={},
        not_exercised={}, timings={},
    )  # fmt: skip
    report = ReportJson(
        schema=1, targets=[target], environment={"seed": shard.seed, "examples": shard.examples}
    )
    line = LineJson(shard=shard.id, report=report, seconds=time.monotonic() - started)
    return msgspec.json.encode(line).decode()


def warmed(workers: int) -> tuple[ExecutorPool, float]:
    """Workers that have started, and how long that took."""
    started = time.monotonic()
    pool = processes(workers)
    waiting: list[Future[str]] = [pool.submit(_ready, "") for _ in range(workers)]
    for future in waiting:
        future.result()
    return pool, time.monotonic() - started


def _ready(text: str) -> str:
    time.sleep(0.2)  # so that each worker takes one
    return text


@dataclass
class Figures:
    """One campaign."""

    workers: int
    shards: int
    wall: float
    worked: float
    start: float
    load: float = field(default_factory=lambda: os.getloadavg()[0])

    def __str__(self) -> str:
        idle = 1 - self.worked / (self.wall * self.workers)
        return (
            f"{self.workers} workers: {self.shards} shards of {self.worked / self.shards:.1f} s in "
            f"{self.wall:.1f} s, overhead {100 * idle:.2f}% of worker time, "
            f"{3600 * self.shards / self.wall:,.0f} shards an hour "
            f"(start of the workers {self.start:.1f} s, load {self.load:.1f})"
        )


def campaign(workers: int, shards: int, seconds: float) -> Figures:
    """Run one, a whole number of shards to each worker."""
    plan = Plan(targets=[Planned(target="it", groups=[LAWS])], shards=shards * workers)
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger.open(Path(folder) / "ledger.jsonl", msgspec.to_builtins(plan))
        pool, start = warmed(workers)
        started = time.monotonic()
        made = Campaign(plan=plan, ledger=ledger, pool=pool, work=partial(work, seconds))
        tally = made.run()
        wall = time.monotonic() - started
        ledger.close()
    assert tally.finished == shards * workers
    return Figures(workers, tally.finished, wall, tally.worked, start)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--shards", type=int, default=4, help="of each worker")
    parser.add_argument("--workers", default="1,2")
    asked = parser.parse_args()
    found = []
    for workers in map(int, asked.workers.split(",")):
        found.append(campaign(workers, asked.shards, asked.seconds))
        print(found[-1], flush=True)
    if len(found) > 1:
        rates = [one.shards / one.wall for one in found]
        print(f"{found[-1].workers} workers do {rates[-1] / rates[0]:.2f}x the work of one")


if __name__ == "__main__":
    main()
