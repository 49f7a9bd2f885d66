"""What a comparison of formulations found: a sentence, a matrix of pairs, and each disagreement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from equivalence.replay import case_text, replay_line
from equivalence.report.failure import fact_line, trouble_lines
from equivalence.report.numbers import count, counted, percent, short
from equivalence.report.tables import LETTERS, Marks, Table
from equivalence.report.text import Shown

if TYPE_CHECKING:
    from equivalence.pairs import Edge, PairsResult


def pairs_sentence(result: PairsResult) -> str:
    """The plain verdict: whether every pair agrees, and if not, who is odd."""
    compared = sum(edge.compared for edge in result.edges)
    pairs = [edge for edge in result.edges if edge.compared]
    if result.held is None:
        return "no pair was compared: " + _why(result)
    equal = percent(sum(edge.equal for edge in result.edges) / max(1, compared))
    done = f"{counted(compared, 'comparison')} of {counted(len(pairs), 'pair')}"
    if result.held:
        worst = short(max(edge.used for edge in pairs))
        return f"all agree: {done}, {equal} equal bit for bit, worst {worst} of the two bounds"
    broken = sum(bool(edge.broken) for edge in pairs)
    odd = f"; odd one out: {', '.join(odd_ones(result))}" if odd_ones(result) else ""
    return f"{counted(broken, 'pair')} of {len(pairs)} disagree in {done}, {equal} equal{odd}"


def odd_ones(result: PairsResult) -> list[str]:
    """Who disagrees with most of the others; of two that disagree, nobody can say it."""
    return result.odd if len(result.names) > 2 else []


def _why(result: PairsResult) -> str:
    if result.not_exercised:
        return "; ".join(f"{name} refused: {why}" for name, why in result.not_exercised.items())
    return "no two take the same cases"


def pairs_lines(result: PairsResult, facts: Mapping[str, Any]) -> list[Shown]:
    """The verdict, then one block for each pair that disagrees, the odd ones first."""
    style = {True: "held", False: "broken", None: "nothing"}[result.held]
    lines: list[Shown] = [(style, pairs_sentence(result))]
    for edge in _told(result):
        assert edge.trouble is not None
        first, *rest = trouble_lines(edge.first, edge.trouble, edge.case.dtype)
        rest.append(fact_line("case", case_text(edge.case)))
        rest += [
            fact_line("replay", replay_line(name, edge.case, facts))
            for name in (edge.first, edge.second)
        ]
        lines += [("", ""), ("failure", first), *(("fact", fact) for fact in rest)]
    if any(edge.broken for edge in result.edges):
        lines.append(("", ""))
    return lines


def _told(result: PairsResult) -> list[Edge]:
    """The broken pairs; where some are odd, one pair for each of them tells enough."""
    broken = [edge for edge in result.edges if edge.trouble is not None]
    odd = odd_ones(result)
    if not odd:
        return broken
    told = []
    for name in odd:
        own = [edge for edge in broken if name in (edge.first, edge.second)]
        told += own[:1]
    return list({id(edge): edge for edge in told}.values())


def pairs_table(result: PairsResult, marks: Marks) -> Table:
    """A row and a column for each formulation: the share of outputs equal bit for bit."""
    edges = {frozenset((edge.first, edge.second)): edge for edge in result.edges}
    rows = []
    for row, name in enumerate(result.names):
        cells = [_cell(edges, name, other, marks) for other in result.names[:row]]
        cells += [""] * (len(result.names) - 1 - row)
        rows.append((f"{LETTERS[row]} {name}", *cells[: len(result.names) - 1]))
    headings = ("equal bits, %", *LETTERS[: len(result.names) - 1])
    note = f"{marks.broken} disagree  {marks.nothing} never compared"
    return Table(headings=headings, rows=tuple(rows), right=frozenset(headings[1:]), notes=(note,))


def _cell(edges: Mapping[frozenset[str], Edge], name: str, other: str, marks: Marks) -> str:
    edge = edges.get(frozenset((name, other)))
    if edge is None or not edge.compared:
        return marks.nothing
    return marks.broken if edge.broken else f"{int(100 * edge.equal_share)}"


def closing_pairs_lines(result: PairsResult) -> list[Shown]:
    """Shares of the cases, and who was left out."""
    facts = result.shares.summary()
    lines: list[Shown] = [
        (
            "",
            f"{count(int(facts['checks']))} comparisons judged; median kv_len "
            f"{facts['median_kv_len']:g}, grouped {percent(facts['grouped'])}, "
            f"real head_dim {percent(facts['real_head_dim'])}, vacuous "
            f"{percent(facts['vacuous'])}",
        )
    ]
    lines += [
        ("quiet", f"not exercised: {name}: {why}") for name, why in result.not_exercised.items()
    ]
    return lines
