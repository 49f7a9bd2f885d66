"""Runs as Markdown for the summary of a pull request, cut to what its reader takes."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Final

from equivalence.report.audit_json import AuditJson
from equivalence.report.merging import Fault, Merge
from equivalence.report.numbers import count, counted, percent, short
from equivalence.report.timing_views import Chart, charts
from equivalence.report.views import (
    MARKS,
    Meanings,
    headline,
    matrices,
    meanings,
    targets,
    worst_cases,
)

# Of one step's summary on GitHub: docs.github.com, "Workflow commands", "Adding a job summary".
LARGEST: Final = 2**20
ROOM: Final = 200  # bytes that are kept for saying what was left out


def markdown(merge: Merge, *, most: int = LARGEST) -> str:
    """The summary within ``most`` bytes; what does not fit is left out from the end, and said."""
    kept: list[str] = []
    size, left_out = 0, 0
    for block in _blocks(merge):
        cost = len(block.encode()) + 1
        if left_out or size + cost > most - ROOM:
            left_out += 1
            continue
        kept.append(block)
        size += cost
    if left_out:
        text = f"*{counted(left_out, 'part')} left out: a summary holds {most // 1024:,} KiB.*"
        kept.append(text + " The whole is in the HTML report and in the JSON.\n")
    return "\n".join(kept)


def _blocks(merge: Merge) -> Iterator[str]:
    state, sentence = headline(merge)
    yield f"## Attention equivalence {_mark(state)}\n\n{_text(sentence)}\n"
    for text in sorted(merge.complaints):
        yield f"- {_text(text)}"
    for text in sorted(merge.remarks):
        yield f"- {_text(text)}"
    for shown in targets(merge):
        for fault in shown.faults:
            yield _fault(shown.name, fault)
    for matrix in matrices(merge):
        lines = [
            f"### {_text(matrix.kind)}\n",
            "| target | verdict | laws held | broken | nothing judged |",
            "|---|---|---:|---:|---:|",
        ]
        for _, name, verdict, cells in matrix.rows:
            states = [cell.state for cell in cells]
            broken = [law for law, s in zip(matrix.laws, states, strict=True) if s == "broken"]
            named = f" ({', '.join(map(_text, broken))})" if broken else ""
            held = states.count("held") + states.count("known")
            lines.append(
                f"| {_text(name)} | {_mark(verdict)} | {held} | {len(broken)}{named} "
                f"| {states.count('nothing')} |"
            )
        yield "\n".join(lines) + "\n"
    near = worst_cases(merge)
    if near:
        lines = [
            "### Nearest to the bound\n",
            "| used | target | law | dtype |",
            "|---:|---|---|---|",
        ]
        lines += [
            f"| {short(n.used)} | {_text(n.target)} | {_text(n.law)} | {_text(n.dtype)} |"
            for n in near[:10]
        ]
        yield "\n".join(lines) + "\n"
    if merge.pairs:
        lines = ["### Pairs\n", "| first | second | compared | equal bits | worst | |"]
        lines.append("|---|---|---:|---:|---:|---|")
        for (first, second), pair in sorted(merge.pairs.items()):
            share = percent(pair.equal / max(1, pair.compared))
            verdict = "apart" if pair.held is False else ""
            lines.append(
                f"| {_text(first)} | {_text(second)} | {count(pair.compared)} | {share} "
                f"| {short(pair.used)} | {verdict} |"
            )
        yield "\n".join(lines) + "\n"
    asked = meanings(merge)
    if asked is not None:
        yield _meanings(asked)
    for chart in charts(merge):
        yield _chart(chart)
    for key in sorted(merge.audits):
        yield _audit(merge.audits[key])
    for name, why in sorted(merge.unavailable):
        yield f"- not available: {_text(name)}: {_text(why)}"


def _meanings(asked: Meanings) -> str:
    lines = ["### What is meant\n", "| question | answers |", "|---|---|"]
    for axis, asks, _, cells in asked.rows:
        told: dict[str, list[str]] = {}
        for name, (state, answer) in zip(asked.runtimes, cells, strict=True):
            if state:
                said = answer if state == "answer" else f"refused ({answer})"
                told.setdefault(said, []).append(name)
        each = "; ".join(f"{_text(said)}: {_text(', '.join(told[said]))}" for said in sorted(told))
        lines.append(f"| {_text(axis)}: {_text(asks)} | {each} |")
    if asked.differences:
        lines += ["", "| first | second | differ in | smallest case |", "|---|---|---|---|"]
        lines += [f"| {' | '.join(map(_text, row))} |" for row in asked.differences]
    return "\n".join(lines) + "\n"


def _chart(chart: Chart) -> str:
    lines = [f"### Timings: {_text(chart.title)}\n"]
    lines += [f"- {_text(line)}" for line in chart.reading]
    lines += ["", f"| formulation | {_text(chart.across)} | time | over the floor |"]
    lines.append("|---|---:|---:|---:|")
    for line in chart.lines:
        lines += [f"| {_text(line.name)} | {' | '.join(map(_text, row))} |" for row in line.words]
    return "\n".join(lines) + "\n"


def _audit(audit: AuditJson) -> str:
    lines = ["### Graphs\n"]
    for one in audit.exceeded:
        lines.append(f"- {_text(one.graph)}: {_text(one.limit)} {one.found}, allowed {one.allowed}")
    lines += ["", "| graph | operations | that repeat heads | bytes written | read |"]
    lines.append("|---|---:|---:|---:|---:|")
    for graph in audit.graphs:
        lines.append(
            f"| {_text(graph.name)} | {count(graph.operations.total)} "
            f"| {count(graph.repeated_heads.count)} | {count(graph.bytes.written)} "
            f"| {count(graph.bytes.read)} |"
        )
    against = audit.against
    if against is not None:
        both = f"From {_text(against.before)} to {_text(against.after)}: {_text(against.text)}"
        lines += ["", both, "", "| quantity | before | after |", "|---|---:|---:|"]
        for name, change in sorted(against.quantities.items()):
            before, after = _text(str(change.before)), _text(str(change.after))
            lines.append(f"| {_text(name)} | {before} | {after} |")
    return "\n".join(lines) + "\n"


def _fault(name: str, fault: Fault) -> str:
    where = f" in {_text(', '.join(sorted(fault.dtypes)))}" if fault.dtypes else ""
    return (
        f"### {_text(name)}: {_text(fault.kind)}\n\n{_text(fault.text)}\n\n"
        f"Breaks {_text(', '.join(sorted(fault.laws)))}{where}.\n\n"
        f"{_code(fault.shown.replay)}\n"
    )


def _mark(state: str) -> str:
    words = {"held": "holds", "broken": "does not hold", "nothing": "nothing was judged"}
    return f"({MARKS[state]} {words.get(state, state)})"


def _text(text: str) -> str:
    """``text`` as nothing but text: no markup, no mention, no new line."""
    escaped = html.escape(" ".join(text.split()), quote=False)
    return re.sub(r"([\\`*_{}\[\]()#+!|~@-])", r"\\\1", escaped).replace("\\@", "&#64;")


def _code(text: str) -> str:
    """``text`` in a fence that it cannot close."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"
