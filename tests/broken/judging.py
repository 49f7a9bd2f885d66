"""Check one broken kernel and say what became of it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from equivalence.calling import LocalTarget
from equivalence.engine import Progress, Request, check_target
from equivalence.results import Failure, TargetResult
from equivalence.search import size_of
from tests.broken.entry import Broken


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What a check made of a broken kernel in one dtype.

    first: cases drawn until the first failure. seconds: of one core, until the last shrunk case
    has its name (to the end, where none was shrunk); what a check does after that looks for
    further faults, and took ``whole`` in all. failures: as reported, the simplest first.
    """

    entry: Broken
    dtype: str
    result: TargetResult
    first: int | None
    seconds: float
    whole: float

    @property
    def caught(self) -> bool:
        """Whether the kernel was condemned."""
        return self.result.held is False

    @property
    def failures(self) -> list[Failure]:
        """The failures of its laws; those of its declaration where no law broke."""
        found = self.result.failures
        return [f for f in found if f.trouble.kind != "refusal"] or found

    @property
    def smallest(self) -> Any:
        """The smallest case that was reported."""
        return self.failures[0].case if self.failures else None

    @property
    def minimal(self) -> bool:
        """Whether that is no larger than the case which the collection states.

        A minimum need not be unique: another case of as many words and elements will do.
        """
        stated = self.entry.smallest_case(self.dtype)
        if stated is None:
            return True
        return self.smallest is not None and size_of(self.smallest)[0] <= size_of(stated)[0]

    @property
    def named(self) -> bool:
        """Whether a failure has one of the right names, and the first is not a wrong one."""
        kinds = [f.diagnosis.kind for f in self.failures]
        return bool(kinds) and kinds[0] in self.entry.diagnoses


def judge(
    entry: Broken, dtype: str, *, seed: int = 0, laws: tuple[str, ...] | None = None
) -> Judged:
    """Check ``entry`` with the examples of a default run.

    laws: None stands for those that see it, () for all of them.
    """
    target = LocalTarget.of(entry.kernel, name=entry.name, facts=entry.declared)
    chosen = entry.laws if laws is None else (laws or None)
    request = Request(dtypes=(dtype,), laws=chosen, seed=seed)
    named: list[float] = []

    def listen(progress: Progress) -> None:
        if progress.stage == "named":
            named.append(time.process_time())

    start = time.process_time()
    result = check_target(target, request, listen)
    end = time.process_time()
    firsts = [law.first for law in result.laws if law.first is not None]
    return Judged(
        entry=entry,
        dtype=dtype,
        result=result,
        first=min(firsts, default=None),
        seconds=max(named, default=end) - start,
        whole=end - start,
    )
