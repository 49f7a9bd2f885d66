"""Hand out shards, write down what comes back, and explain each new mistake once."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from dataclasses import dataclass, field
from typing import Final

import msgspec

from equivalence.campaign.ledger import Ledger, LineJson, RawJson
from equivalence.campaign.plan import Plan, Shard
from equivalence.campaign.pools import Pool
from equivalence.campaign.shard import INTERRUPTED, empty_report
from equivalence.campaign.sharing import SharedCases

MOST_ATTEMPTS: Final = 4
ALONE_FROM: Final = 2  # a shard that was lost so often runs alone: others shall not fall with it
CRASHES: Final = ("crash", "hang", "memory")


@dataclass(slots=True, kw_only=True)
class Tally:
    """Where a campaign stands; unreached: targets with laws of which no shard was finished."""

    finished: int = 0
    resumed: int = 0
    running: int = 0
    lost: dict[str, str] = field(default_factory=dict)
    retried: int = 0
    checks: int = 0
    worked: float = 0.0
    faults: dict[tuple[str, str, str], str] = field(default_factory=dict)
    verdicts: dict[str, set[bool | None]] = field(default_factory=dict)
    crashed: bool = False
    unreached: list[str] = field(default_factory=list)

    @property
    def held(self) -> bool:
        """Whether every target of the plan was judged, with all of its laws, and held."""
        verdicts = self.verdicts.values()
        judged = bool(verdicts) and not self.unreached
        return judged and all(True in v and False not in v for v in verdicts)


@dataclass(slots=True)
class Task:
    """A shard that is on its way."""

    shard: Shard
    attempts: int = 1


@dataclass(slots=True, kw_only=True)
class Campaign:
    """One campaign: its plan, where it runs, and what is known so far.

    deadline: of time.monotonic, after which no shard starts. work: what a worker calls.
    """

    plan: Plan
    ledger: Ledger
    pool: Pool
    work: Callable[[str], str]
    deadline: float | None = None
    cases: SharedCases | None = None
    progress: Callable[[Tally], None] = lambda tally: None
    tally: Tally = field(default_factory=Tally)
    _done: set[str] = field(default_factory=set)
    _explained: set[str] = field(default_factory=set)
    _asked: set[str] = field(default_factory=set)
    _explain: deque[Task] = field(default_factory=deque)
    _again: deque[Task] = field(default_factory=deque)
    _running: dict[Future[str], Task] = field(default_factory=dict)

    def resume(self, lines: Iterable[LineJson]) -> None:
        """Take over what an earlier coordinator wrote down."""
        waiting: list[tuple[LineJson, RawJson]] = []
        for line in lines:
            if line.shard in self._done:
                continue
            self._note(line)
            self.tally.resumed += 1
            waiting += [(line, raw) for raw in line.found]
        for line, raw in waiting:
            self._explain_once(line.shard, raw)

    def run(self) -> Tally:
        """Work until the plan or the time is over and every mistake is explained."""
        first = {}
        if self.cases is not None:
            first = {p.target: self.cases.read(p.target) for p in self.plan.targets}
        shards = iter(s for s in self.plan.every_shard(first) if s.id not in self._done)
        try:
            while True:
                self._fill(shards)
                self.tally.running = len(self._running)
                self.progress(self.tally)
                if not self._running:
                    return self.tally
                self._collect()
        finally:
            self.tally.unreached = self._unreached()
            self.pool.close()

    def _unreached(self) -> list[str]:
        """The targets with laws of which no shard was finished, in the plan's order."""
        reached = {shard_id.split(":", 1)[1] for shard_id in self._done}  # whatever the seed
        return [
            planned.target
            for planned in self.plan.targets
            if any(f"{planned.target}:{n}" not in reached for n in range(len(planned.groups)))
        ]

    def _fill(self, shards: Iterator[Shard]) -> None:
        """Keep every worker busy, with one shard waiting for each."""
        over = self.deadline is not None and time.monotonic() >= self.deadline
        for future, task in list(self._running.items()) if over else ():
            if not task.shard.explains and future.cancel():  # what has not started need not
                del self._running[future]
        room = 2 * self.pool.size
        while len(self._running) < room:
            if any(task.attempts >= ALONE_FROM for task in self._running.values()):
                return
            alone = [task for task in self._again if task.attempts >= ALONE_FROM]
            if self._again and not alone:
                task = self._again.popleft()
            elif alone:
                if self._running:
                    return
                task = alone[0]
                self._again.remove(task)
            elif self._explain:
                task = self._explain.popleft()
            elif over:
                return
            else:
                shard = next(shards, None)
                if shard is None:
                    return
                task = Task(shard)
            text = msgspec.json.encode(task.shard).decode()
            try:
                future = self.pool.submit(self.work, text)
            except BrokenExecutor:
                self._again.appendleft(task)
                if not self._running:
                    self.pool.mend()
                    continue
                return
            self._running[future] = task

    def _collect(self) -> None:
        """Write down what has finished, and see to what was lost."""
        timeout = None
        if self.deadline is not None:
            timeout = max(0.0, self.deadline - time.monotonic()) or None
        finished, _ = wait(self._running, timeout=timeout, return_when=FIRST_COMPLETED)
        broken = False
        for future in finished:
            task = self._running.pop(future)
            error = future.exception() if not future.cancelled() else CancelledError()
            if error is None:
                self._write(task, future.result())
                continue
            broken = broken or isinstance(error, BrokenExecutor)
            self._retry(task, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
        if broken:
            # The pool is gone, and with it what it was running.
            for future, task in list(self._running.items()):
                wait([future], timeout=60)
                del self._running[future]
                if future.done() and not future.cancelled() and future.exception() is None:
                    self._write(task, future.result())
                else:
                    self._retry(task, "its worker was lost")
            self.pool.mend()

    def _retry(self, task: Task, why: str) -> None:
        if task.attempts < MOST_ATTEMPTS:
            self.tally.retried += 1
            self._again.append(Task(task.shard, task.attempts + 1))
            return
        explains = [task.shard.explains] if task.shard.explains else []
        line = LineJson(
            shard=task.shard.id,
            report=empty_report(),
            seconds=0.0,
            attempts=task.attempts,
            explains=explains,
            lost=f"given up after {task.attempts} attempts: {why}",
        )
        self.ledger.add(line)
        self._note(line)

    def _write(self, task: Task, text: str) -> None:
        try:
            line = msgspec.json.decode(text, type=LineJson)
        except msgspec.MsgspecError as error:
            self._retry(task, f"its worker answered something else: {error}")
            return
        if line.lost == INTERRUPTED:
            self._retry(task, "its worker was stopped")
            return
        line = msgspec.structs.replace(line, attempts=task.attempts)
        self.ledger.add(line)
        self._note(line)
        self.tally.finished += 1
        for raw in line.found:
            if self.cases is not None:
                self.cases.add(task.shard.target, raw.law, raw.case)
            self._explain_once(line.shard, raw)

    def _note(self, line: LineJson) -> None:
        """What a line says, whether it is new or was there before."""
        self._done.add(line.shard)
        self.tally.worked += line.seconds
        if line.lost:
            self.tally.lost[line.shard] = line.lost
        for target in line.report.targets:
            self._explained.update(f"{target.target}:{sign}" for sign in line.explains)
            self.tally.checks += sum(law.examples for law in target.laws)
            self.tally.verdicts.setdefault(target.target, set()).add(target.held)
            for failure in target.failures:
                fault = (target.target, failure.diagnosis.kind, failure.diagnosis.text)
                self.tally.faults.setdefault(fault, failure.counterexample.replay)
                self._explained.add(f"{target.target}:{_sign(failure.law, failure.diagnosis.kind)}")
                if failure.counterexample.trouble in CRASHES:
                    self.tally.crashed = True

    def _explain_once(self, shard_id: str, raw: RawJson) -> None:
        """Ask for the smallest case of a mistake that has not been seen in its target yet."""
        target = shard_id.split(":", 1)[1].rpartition(":")[0]
        sign = _sign(raw.law, raw.diagnosis)
        name = f"{target}:{sign}"
        if name in self._explained or name in self._asked:
            return
        self._asked.add(name)
        shard = Shard(
            id=f"explain:{name}",
            target=target,
            laws=[raw.law],
            seed=int(shard_id.split(":", 1)[0]),
            first=[raw.case],
            explains=sign,
            **{**self.plan.shared, "dtypes": [raw.dtype], "seconds": None},
        )
        if shard.id not in self._done:
            self._explain.append(Task(shard))


def _sign(law: str, diagnosis: str) -> str:
    """What is taken for one mistake of one target before it is shrunk."""
    return f"{diagnosis}:{law}" if diagnosis in ("unknown", "crash") else diagnosis
