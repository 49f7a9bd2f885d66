"""What a person reads about a run, as lines: the same facts on a terminal and in a pipe."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from equivalence.report.failure import failure_lines
from equivalence.report.numbers import count, counted
from equivalence.report.summary import (
    LawSummary,
    law_summaries,
    refusals,
    sentence,
    shares_line,
)
from equivalence.report.tables import Marks, Table, backend_table, law_table
from equivalence.results import TargetResult

Shown = tuple[str, str]  # a style ("" is plain) and one line of text


def target_lines(target: TargetResult) -> list[Shown]:
    """The verdict on one target, then its failures; printed as soon as the target is done."""
    style = {True: "held", False: "broken", None: "nothing"}[target.held]
    if target.held and target.limited:
        style = "nothing"
    lines: list[Shown] = [(style, sentence(target))]
    for failure in target.failures:
        first, *facts = failure_lines(target.target, failure)
        lines += [("", ""), ("failure", first), *(("fact", fact) for fact in facts)]
    if target.failures:
        lines.append(("", ""))
    return lines


def run_table(targets: Sequence[TargetResult], *, one: Marks, several: Marks) -> Table | None:
    """A row for each law of one target, or a row for each of several; None without laws."""
    if not any(target.laws for target in targets):
        return None
    if len(targets) == 1:
        return law_table(targets[0], one)
    return backend_table(targets, several)


def closing_lines(targets: Sequence[TargetResult], *, timings: bool = False) -> list[Shown]:
    """What comes after the table: shares, remarks, what was not exercised and why, timings.

    A fact that several targets share stands once, with their names.
    """
    lines: list[Shown] = []
    if any(target.shares.cases for target in targets):
        lines.append(("", shares_line(target.shares for target in targets)))
    shared: dict[Shown, list[str]] = {}
    for target in targets:
        for fact in _facts(target, timings=timings):
            shared.setdefault(fact, []).append(target.target)
    for (style, text), names in shared.items():
        lines.append((style, text + _who(names, len(targets))))
    return lines


def _who(names: Sequence[str], targets: int) -> str:
    if targets == 1:
        return ""
    return f" [all {targets}]" if len(names) == targets else f" [{', '.join(names)}]"


def _facts(target: TargetResult, *, timings: bool) -> Iterator[Shown]:
    for fact in target.card:
        yield "", fact
    yield from (("", line) for line in _remarks(target.remarks))
    laws = law_summaries(target)
    for law in laws:
        if law.known:
            yield "", f"known fault: {law.name}: {law.known}"
    features: dict[str, list[str]] = {}
    for feature, reason in target.not_exercised.items():
        features.setdefault(reason, []).append(feature)
    for reason, named in features.items():
        yield "quiet", f"not exercised: {', '.join(named)}: {reason}"
    for reason, times in refusals(target).items():
        yield "quiet", f"refused {count(times)} times: {reason}"
    if timings:
        for what, seconds in target.timings.items():
            yield "", f"time: {what} {seconds:.3g} s"
        for law in sorted(laws, key=lambda law: -law.seconds):
            if law.seconds:
                yield "", f"time: {law.name} {law.seconds:.3g} s{_calls(law)}"


def _remarks(remarks: Mapping[str, int]) -> Iterator[str]:
    """Each remark; of those that begin alike and may contradict each other, how often, too."""
    alike = Counter(text.split()[0] for text in remarks)
    for text, times in remarks.items():
        often = f" ({counted(times, 'case')})" if alike[text.split()[0]] > 1 else ""
        yield f"remark: {text}{often}"


def _calls(law: LawSummary) -> str:
    """The median call of each dtype, where calls were timed."""
    timed = [
        f"{statistics.median(result.times) * 1e3:.3g} ms {result.dtype}"
        for result in law.dtypes
        if result.times
    ]
    calls = sum(len(result.times) for result in law.dtypes)
    return f"; the median of {count(calls)} calls {', '.join(timed)}" if timed else ""
