"""Keep searching: round after round with new seeds and a growing budget, until time is up."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import count
from typing import Any, Final

from equivalence.engine import check_target
from equivalence.failing_cases import FailingCases
from equivalence.laws import all_laws
from equivalence.outcome import Target
from equivalence.parts import Beside
from equivalence.request import Progress, Report, Request, silent
from equivalence.results import Failure, TargetResult
from equivalence.used_parts import added
from equivalence.verdict import LawResult

GROWTH: Final = 2
MOST_EXAMPLES: Final = 20_000  # of one round, each of which draws afresh
COUNTS: Final = ("examples", "vacuous", "refused", "excluded", "broken")


def hunt_target(
    target: Target,
    request: Request,
    *,
    seconds: float | None = None,
    store: FailingCases | None = None,
    progress: Report = silent,
    beside: Beside | None = None,
) -> TargetResult:
    """Check ``target`` for ``seconds`` (None: one round); Ctrl-C keeps what is known.

    The first round looks at the failing cases of ``store``. Each round covers every two options
    of attention on purpose, draws with another seed, and twice as many cases as the one before.
    A law that broke is not searched again, and what broke it goes into ``store`` at once.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    laws = list(request.laws or (law.name for law in all_laws(target.declaration.kind)))
    known = tuple(case for _, case in store.read()) if store is not None else ()
    total: TargetResult | None = None
    examples, drawn = request.examples, 0
    for number in count():
        left = None if deadline is None else deadline - time.monotonic()
        if number and (left is None or left <= 0):
            break
        asked = replace(
            request,
            seed=request.seed + number,
            examples=examples,
            seconds=_less(left, request.seconds),
            laws=tuple(laws),
            pairs=request.pairs or seconds is not None,
            first=known if not number else (),
        )
        result = check_target(target, asked, _Numbered(number, progress), beside=beside)
        if store is not None:
            store.add((row.law, found.case) for row in result.laws for found in row.counterexamples)
        before, drawn = drawn, drawn + result.shares.cases
        total = result if total is None else merged(total, result, before)
        broken = {row.law for row in result.laws if row.held is False}
        laws = [law for law in laws if law not in broken]
        if result.interrupted or result.trouble or not laws or not result.shares.cases:
            break
        examples = min(GROWTH * examples, MOST_EXAMPLES)
    assert total is not None
    return total


class _Numbered:
    """Says the number of the round from the second on."""

    def __init__(self, number: int, report: Report) -> None:
        self._number, self._report = number, report

    def __call__(self, progress: Progress) -> None:
        name = progress.target
        if self._number:
            name = f"{name} (round {self._number + 1})"
        self._report(replace(progress, target=name))


def _less(one: float | None, other: float | None) -> float | None:
    known = [limit for limit in (one, other) if limit is not None]
    return max(0.0, min(known)) if known else None


def merged(one: TargetResult, two: TargetResult, drawn: int) -> TargetResult:
    """Two rounds on one target as one; ``drawn`` cases came before the second."""
    rows: dict[tuple[str, str], LawResult] = {(row.law, row.dtype): row for row in one.laws}
    for row in two.laws:
        mine = rows.setdefault((row.law, row.dtype), row)
        if mine is not row:
            _add(mine, row, drawn)
    one.laws = list(rows.values())
    for failure in two.failures:
        if not any(_alike(failure, other) for other in one.failures):
            one.failures.append(failure)
    for feature, why in two.not_exercised.items():
        one.not_exercised.setdefault(feature, why)
    for remark, times in two.remarks.items():
        one.remarks[remark] = one.remarks.get(remark, 0) + times
    one.card = one.card or two.card
    one.shares.merge([two.shares])
    one.interrupted = one.interrupted or two.interrupted
    return one


def _add(mine: LawResult, row: LawResult, drawn: int) -> None:
    for name in COUNTS:
        setattr(mine, name, getattr(mine, name) + getattr(row, name))
    if row.used > mine.used:
        mine.used, mine.worst_case = row.used, row.worst_case
    mine.histogram = added(mine.histogram, row.histogram)
    for kept, new in ((mine.reasons, row.reasons), (mine.remarks, row.remarks)):
        for text, times in new.items():
            kept[text] = kept.get(text, 0) + times
    mine.counterexamples += row.counterexamples
    mine.known = mine.known or row.known
    mine.seconds += row.seconds
    if mine.first is None and row.first is not None:
        mine.first = drawn + row.first


def _alike(one: Failure, other: Failure) -> bool:
    facts: tuple[Any, Any] = (one.diagnosis, other.diagnosis)
    return facts[0] == facts[1] and (one.law == other.law or facts[0].kind != "unknown")
