"""What a person reads about a run, as lines: the same facts on a terminal and in a pipe."""

from __future__ import annotations

from collections.abc import Sequence

from equivalence.report.failure import failure_lines
from equivalence.report.numbers import count, counted
from equivalence.report.summary import law_summaries, sentence, shares_line
from equivalence.report.tables import Marks, Table, backend_table, law_table
from equivalence.results import TargetResult

Shown = tuple[str, str]  # a style ("" is plain) and one line of text


def target_lines(target: TargetResult) -> list[Shown]:
    """The verdict on one target, then its failures; printed as soon as the target is done."""
    style = {True: "held", False: "broken", None: "nothing"}[target.held]
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
    """What comes after the table: shares, remarks, what was not exercised and why, timings."""
    lines: list[Shown] = []
    if any(target.shares.cases for target in targets):
        lines.append(("", shares_line(target.shares for target in targets)))
    several = len(targets) > 1
    for target in targets:
        name = f"{target.target}: " if several else ""
        lines += [("", f"{name}{fact}") for fact in target.card]
        lines += [
            ("", f"remark: {name}{text} ({counted(times, 'case')})")
            for text, times in target.remarks.items()
        ]
        lines += [
            ("", f"known fault: {name}{law.name}: {law.known}")
            for law in law_summaries(target)
            if law.known
        ]
        lines += _not_exercised(target, name)
        if timings:
            lines += _timings(target, name)
    return lines


def _timings(target: TargetResult, name: str) -> list[Shown]:
    """Where the time went: what the engine measured, then the laws, the slowest first."""
    parts = dict(target.timings)
    laws = sorted(law_summaries(target), key=lambda law: -law.seconds)
    parts |= {law.name: law.seconds for law in laws if law.seconds}
    return [("", f"time: {name}{what} {seconds:.3g} s") for what, seconds in parts.items()]


def _not_exercised(target: TargetResult, name: str) -> list[Shown]:
    features: dict[str, list[str]] = {}
    for feature, reason in target.not_exercised.items():
        features.setdefault(reason, []).append(feature)
    lines = [
        ("quiet", f"not exercised: {name}{', '.join(named)}: {reason}")
        for reason, named in features.items()
    ]
    reasons: dict[str, int] = {}
    for law in target.laws:
        for reason, times in law.reasons.items():
            reasons[reason] = reasons.get(reason, 0) + times
    lines += [
        ("quiet", f"refused {count(times)} times: {name}{reason}")
        for reason, times in sorted(reasons.items(), key=lambda item: -item[1])
    ]
    return lines
