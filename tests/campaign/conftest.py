"""Campaigns whose shards take no time, and the command in a folder with kernels."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from equivalence.campaign.coordinator import Campaign
from equivalence.campaign.ledger import Ledger, LineJson, RawJson, lines_of
from equivalence.campaign.plan import Plan, Planned, Shard
from equivalence.campaign.pools import ExecutorPool
from equivalence.report.schema import (
    CounterexampleJson,
    DiagnosisJson,
    DtypeJson,
    FailureJson,
    LawJson,
    ReportJson,
    TargetJson,
)

COMMAND = (sys.executable, "-c", "from equivalence.cli import main; main()")
KERNELS = '''
"""A kernel that is right, a wrong one, and one that ends its worker once."""

import os

import equivalence
import torch

sdpa = torch.nn.functional.scaled_dot_product_attention


@equivalence.attention(dtypes=("float32",))
def right(query, key, value):
    return sdpa(query, key, value, enable_gqa=True)


@equivalence.attention(dtypes=("float32",))
def tiled(query, key, value):
    group = query.shape[1] // key.shape[1]
    return sdpa(query, key.repeat(1, group, 1, 1), value.repeat(1, group, 1, 1))
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with kernels.py in it."""
    (tmp_path / "kernels.py").write_text(KERNELS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def start(folder: Path) -> Callable[..., subprocess.Popen[str]]:
    """Start the command in a process of its own."""

    def start(*arguments: str, **options: object) -> subprocess.Popen[str]:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [*COMMAND, *arguments]
        return subprocess.Popen(command, cwd=folder, env=environment, text=True, **pipes)  # type: ignore[call-overload, no-any-return]

    return start


def plan(*targets: str, shards: int = 6, groups: int = 1, **facts: Any) -> Plan:
    """A plan for targets of these names."""
    laws = [[f"law-{n}"] for n in range(groups)]
    names = targets or ("one", "two")
    return Plan(targets=[Planned(target=n, groups=laws) for n in names], shards=shards, **facts)


def searched(shard: Shard, *found: RawJson) -> LineJson:
    """What a shard answers that judged 10 cases a law, and found these."""
    row = DtypeJson(dtype="float32", held=not found, examples=10, vacuous=0, refused=0, used=0.5)
    laws = [
        LawJson(
            name=name, held=not found, examples=10, vacuous=0, refused=0, used=0.5, dtypes=[row]
        )
        for name in shard.laws
    ]
    return LineJson(shard=shard.id, report=_report(shard, laws), seconds=1.0, found=list(found))


def explained(shard: Shard, kind: str, text: str) -> LineJson:
    """What a shard answers that was asked for the smallest case of a mistake."""
    shown = CounterexampleJson(
        case="AttentionCase()", replay=f"equivalence replay {shard.target} 'AttentionCase()'",
        index=[], got=None, expected=None, used=None,
    )  # fmt: skip
    failure = FailureJson(
        law=shard.laws[0],
        dtype="float32",
        counterexample=shown,
        diagnosis=DiagnosisJson(kind=kind, text=text),
    )
    report = _report(shard, [], failures=[failure])
    return LineJson(shard=shard.id, report=report, seconds=1.0, explains=[shard.explains])


def _report(shard: Shard, laws: list[LawJson], **facts: Any) -> ReportJson:
    target = TargetJson(
        target=shard.target, kind="attention", held=all(law.held for law in laws) and bool(laws),
        profile="f32", laws=laws, tolerance={}, not_exercised={}, timings={}, **facts,
    )  # fmt: skip
    environment = {"seed": shard.seed, "examples": shard.examples}
    return ReportJson(schema=1, targets=[target], environment=environment)


def raw(
    law: str = "law-0", diagnosis: str = "scale", case: str = "AttentionCase(kv_len=9)"
) -> RawJson:
    """A failing case as a shard found it."""
    return RawJson(
        law=law, dtype="float32", case=case, trouble="outside-bound", diagnosis=diagnosis
    )


@dataclass
class Bench:
    """Runs campaigns with made-up work, and remembers the shards that were done."""

    path: Path
    answer: Callable[[Shard], LineJson] = searched
    done: list[Shard] = field(default_factory=list)

    def work(self, text: str) -> str:
        shard = msgspec.json.decode(text, type=Shard)
        line = self.answer(shard)
        self.done.append(shard)
        return msgspec.json.encode(line).decode()

    def campaign(
        self,
        plan: Plan,
        *,
        resume: bool = False,
        make: Callable[[], Executor] = lambda: ThreadPoolExecutor(2),
        **facts: Any,
    ) -> Campaign:
        ledger = Ledger.open(self.path, None if resume else msgspec.to_builtins(plan))
        pool = ExecutorPool(make, 2)
        made = Campaign(plan=plan, ledger=ledger, pool=pool, work=self.work, **facts)
        made.resume(self.lines())
        return made

    def run(self, plan: Plan, **facts: Any) -> Campaign:
        """A campaign from its start, or from its ledger, to its end."""
        campaign = self.campaign(plan, **facts)
        try:
            campaign.run()
        finally:
            campaign.ledger.close()
        return campaign

    def lines(self) -> list[LineJson]:
        self.remarks: list[str] = []
        return list(lines_of(self.path, self.remarks.append))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A place to run campaigns in."""
    return Bench(tmp_path / "ledger.jsonl")


class Breaking(Executor):
    """Runs work at once, and breaks for good on the shards that ``fatal`` says."""

    def __init__(self, fatal: Callable[[Shard], bool]) -> None:
        self.fatal = fatal
        self.broken = False

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self.broken:
            raise BrokenProcessPool("a process died")
        future: Future[Any] = Future()
        if self.fatal(msgspec.json.decode(args[0], type=Shard)):
            self.broken = True
            future.set_exception(BrokenProcessPool("a process died"))
        else:
            future.set_result(fn(*args))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        pass


class FallingTogether(Executor):
    """Breaks as a pool of processes does: what is on its way together falls together."""

    def __init__(self, fatal: Callable[[Shard], bool]) -> None:
        self.fatal = fatal
        self.broken = False
        self.waiting: list[tuple[Future[Any], Callable[..., Any], str]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self.broken:
            raise BrokenProcessPool("a process died")
        future: Future[Any] = Future()
        self.waiting.append((future, fn, args[0]))
        if len(self.waiting) == 1:
            threading.Timer(0.05, self._finish).start()
        return future

    def _finish(self) -> None:
        together, self.waiting = self.waiting, []
        self.broken = any(self.fatal(msgspec.json.decode(t, type=Shard)) for _, _, t in together)
        for future, fn, text in together:
            if self.broken:
                future.set_exception(BrokenProcessPool("a process died"))
            else:
                future.set_result(fn(text))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        pass
