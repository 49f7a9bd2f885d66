"""The repository's list of expected failures, over the findings of whole runs."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import replace

from equivalence.gate.findings import Findings
from equivalence.xfails import Expected, complaint, expired, unmatched


def with_xfails(findings: Findings, entries: Sequence[Expected], today: datetime.date) -> Findings:
    """The findings with the failures that are expected marked, and what is wrong with the list."""
    valid = [entry for entry in entries if entry.expires >= today]
    failing: set[Expected] = set()
    judged: set[Expected] = set()
    rows = []
    for row in findings.judged:
        entry = next(
            (e for e in valid if e.is_about(row.target) and e.covers(row.law, row.dtype)), None
        )
        if entry is not None and row.held is not None:
            (failing if row.held is False else judged).add(entry)
        # What a run excused by a list of its own needs an entry of this one.
        rows.append(replace(row, expected=entry is not None and row.held is False))
    kinds = [(about.target, about.kind) for about in findings.about]
    whole = not any(about.interrupted for about in findings.about)
    stale = sorted(judged - failing, key=lambda entry: entry.line) if whole else []
    return replace(
        findings,
        judged=frozenset(rows),
        complaints=frozenset(
            [
                *expired(entries, today),
                *unmatched(entries, kinds, whole=whole),
                *(complaint(entry, "no longer fails, remove it") for entry in stale),
            ]
        ),
    )
