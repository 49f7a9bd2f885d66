"""The disagreement map: who means what, as a table of a terminal and as a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from equivalence.replay import case_text
from equivalence.report.numbers import counted
from equivalence.report.schema import AxisJson, DisagreementJson
from equivalence.report.tables import Table
from equivalence.report.text import Shown

if TYPE_CHECKING:
    from equivalence.pairs import PairsResult
    from equivalence.semantics.asking import Map

PAGE: Final = """\
# Where runtimes disagree

<!-- Written by the command below: do not edit. -->

    {command}

Each row of the first table is one question with the smallest case that tells the meanings apart;
runtimes that refuse it, or lack the option, are left out. A runtime stands for what its adapter
asks of it: windows and lengths of other conventions are translated first (JAX's bare int is a
symmetric window, and counts from the upper left). The second table holds for each pair the number
of the question with the smallest case on which the two disagree, `=` where they agree on all that
both answered, and nothing where they share no question. `equivalence replay RUNTIME 'CASE'` runs
one cell.

Versions: {versions}.
"""


def map_sentence(found: Map) -> str:
    """How many pairs agree on everything that both answer."""
    apart = len(found.disagreeing)
    pairs = sum(
        found.shared(first, second)[0] > 0
        for place, first in enumerate(found.names)
        for second in found.names[:place]
    )
    questions = counted(len(found.asked), "question")
    return f"{apart} of {pairs} pairs disagree somewhere, in {questions} to {len(found.names)}"


def map_lines(found: Map) -> list[Shown]:
    """Each question with its camps."""
    lines: list[Shown] = [("", map_sentence(found))]
    for place, question in enumerate(found.asked):
        camps = found.camps(place)
        if not camps:
            continue
        style = "broken" if len(camps) > 1 else "held"
        lines += [("", ""), (style, f"{place + 1}. {question.axis}: {question.asks}")]
        lines += [("fact", f"{meaning}: {', '.join(names)}") for meaning, names in camps.items()]
        lines.append(("fact", f"case      {case_text(question.case)}"))
    return lines


def pair_table(found: Map) -> Table:
    """A row and a column for each runtime: the question that sets them apart soonest."""
    apart = {(first, second): places for first, second, places in found.disagreeing}
    rows = []
    for row, name in enumerate(found.names):
        cells = []
        for other in found.names[:row]:
            both, _ = found.shared(other, name)
            places = apart.get((other, name))
            cells.append(str(places[0] + 1) if places else "=" if both else "")
        rows.append((f"{row + 1} {name}", *cells, *[""] * (len(found.names) - 1 - row)))
    width = len(found.names) - 1
    headings = ("apart by question", *(str(place + 1) for place in range(width)))
    return Table(
        headings=headings,
        rows=tuple(row[: width + 1] for row in rows),
        right=frozenset(headings[1:]),
    )


def map_page(
    found: Map, pairs: PairsResult | None, *, command: str, versions: Mapping[str, str]
) -> str:
    """The whole page, in Markdown."""
    said = ", ".join(f"{name} {version}" for name, version in versions.items())
    lines = [PAGE.format(command=command, versions=said), f"{map_sentence(found)}.", ""]
    lines += ["## Who means what", "", "| | question | meaning | runtimes |", "|---|---|---|---|"]
    for place, question in enumerate(found.asked):
        first = True
        for meaning, names in found.camps(place).items():
            asked = f"**{question.axis}**: {question.asks} `{case_text(question.case)}`"
            who = ", ".join(f"`{name}`" for name in names)
            number = str(place + 1) if first else ""
            lines.append(f"| {number} | {asked if first else ''} | {meaning} | {who} |")
            first = False
    table = pair_table(found)
    lines += ["", "## Pairs", "", "| " + " | ".join(table.headings) + " |"]
    lines += ["|" + "---|" * len(table.headings)]
    lines += ["| " + " | ".join(row) + " |" for row in table.rows]
    if pairs is not None:
        lines += ["", "## Generated cases", "", *_generated(pairs)]
    return "\n".join(lines) + "\n"


def _generated(pairs: PairsResult) -> list[str]:
    """What a search of cases that most of them take found beside the questions."""
    compared = sum(edge.compared for edge in pairs.edges)
    edges = [edge for edge in pairs.edges if edge.trouble is not None]
    lines = [
        f"{compared:,} comparisons within the sum of two bounds, of those that compile nothing; "
        f"{counted(len(edges), 'pair')} disagreed on a case that both declare to take.",
    ]
    for edge in edges:
        lines.append(f"- `{edge.first}` and `{edge.second}`: `{case_text(edge.case)}`")
    return lines


def axes_json(found: Map) -> list[AxisJson]:
    """Every question with every answer, for machines."""
    return [
        AxisJson(
            axis=question.axis,
            asks=question.asks,
            case=case_text(question.case),
            answers={n: a.meaning for n, a in found.answers[place].items() if a.meaning},
            refused={n: a.why for n, a in found.answers[place].items() if not a.meaning},
        )
        for place, question in enumerate(found.asked)
    ]


def disagreements_json(found: Map) -> list[DisagreementJson]:
    """Every pair that disagrees, with its smallest case."""
    return [
        DisagreementJson(
            first=first,
            second=second,
            questions=[place + 1 for place in places],
            case=case_text(found.asked[places[0]].case),
        )
        for first, second, places in found.disagreeing
    ]
