"""What a person reads of an audit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from equivalence.audit.advice import advice_of
from equivalence.audit.flows import LABEL
from equivalence.report.kvspec import binary
from equivalence.report.numbers import count, counted
from equivalence.report.tables import Table

if TYPE_CHECKING:
    from equivalence.audit.account import Account
    from equivalence.audit.agreement import Agreement
    from equivalence.audit.budget import Exceeded
    from equivalence.audit.difference import Difference
    from equivalence.audit.replication import Replication
    from equivalence.report.text import Shown

ABOUT = ("target", "coremltools", "precision", "cache", "context", "query length")


def account_lines(account: Account) -> list[Shown]:
    """The first lines about one graph: what it is, what it repeats, and what to do about it."""
    conditions = account.conditions
    about = ", ".join(f"{name} {conditions[name]}" for name in ABOUT if name in conditions)
    lines: list[Shown] = [("", f"{account.name}: {about}")]
    if account.undecided:
        lines.append(("nothing", "  its heads could not be followed: see `docs/audit.md`"))
    heads = account.of_heads
    moved = f"{binary(account.head_bytes)} written and {binary(account.head_bytes_read)} read"
    if heads:
        text = f"{counted(len(heads), 'operation')} that repeat key/value heads: {moved}"
        lines.append(("broken", f"  {text} ({count(account.head_bytes)} bytes each way)"))
    else:
        lines.append(("held", "  no operation repeats key/value heads"))
    lines += [("", f"  advice: {text}") for text in advice_of(account)]
    return lines


def summary_table(accounts: Sequence[Account]) -> Table:
    """Figures in rows, graphs in columns."""
    rows = [
        ("attentions", *(count(len(a.sites)) for a in accounts)),
        ("fused attentions", *(count(a.fused) for a in accounts)),
        ("operations", *(count(a.total_ops) for a in accounts)),
        ("with constants", *(count(a.with_constants) for a in accounts)),
        ("casts", *(count(sum(a.casts.values())) for a in accounts)),
        ("repeat heads", *(count(len(a.of_heads)) for a in accounts)),
        ("bytes of those", *(count(a.head_bytes) for a in accounts)),
        ("repeat anything", *(count(len(a.replications)) for a in accounts)),
        ("bytes written", *(count(a.flow.written) for a in accounts)),
        ("bytes read", *(count(a.flow.read) for a in accounts)),
        ("constant bytes", *(count(a.constant_bytes) for a in accounts)),
        ("state writes", *(count(a.state_writes) for a in accounts)),
        ("bytes updated", *(count(sum(s.updated for s in a.states)) for a in accounts)),
        ("multiply-accumulates", *(count(a.macs) for a in accounts)),
        ("of attention", *(count(a.attention_macs) for a in accounts)),
        ("transposes", *(_rearranged(a, "transpose") for a in accounts)),
        ("gathers", *(_rearranged(a, "gather") for a in accounts)),
    ]
    headings = ("a call", *(a.name for a in accounts))
    return Table(headings=headings, rows=tuple(rows), right=frozenset(headings[1:]), notes=(LABEL,))


def _rearranged(account: Account, kind: str) -> str:
    number, size = account.rearranged.get(kind, (0, 0))
    return count(number) if not number else f"{count(number)} ({binary(size)})"


def histogram_table(accounts: Sequence[Account]) -> Table:
    """How often each operation stands in each graph."""
    names = sorted({name for a in accounts for name in a.histogram})
    headings = ("operation", *(a.name for a in accounts))
    rows = tuple((n, *(count(a.histogram.get(n, 0)) for a in accounts)) for n in names)
    return Table(headings=headings, rows=rows, right=frozenset(headings[1:]))


def replication_table(account: Account) -> Table | None:
    """What is repeated, alike ones together; None where nothing is."""
    groups: dict[tuple[str, ...], list[Replication]] = {}
    for one in account.replications:
        before = next(v for v in one.op.operands if not v.is_constant)
        heads = f"{one.matched[0]} to {one.matched[1]}, {one.order}" if one.matched else ""
        shapes = f"{list(before.shape)} to {list(one.op.output.shape)} {one.op.output.dtype}"
        key = (one.op.type, shapes, " and ".join(one.roles), heads)
        groups.setdefault(key, []).append(one)
    if not groups:
        return None
    headings = ("count", "operation", "shapes", "repeats", "heads", "bytes each", "bytes")
    rows = tuple(
        (
            count(len(ones)),
            *key,
            count(ones[0].written),
            count(sum(one.written for one in ones)),
        )
        for key, ones in groups.items()
    )
    return Table(headings=headings, rows=rows, right=frozenset(("count", *headings[-2:])))


def difference_table(found: Difference) -> Table:
    """Every quantity that changed."""
    headings = ("what changed", found.before, found.after, "change")
    rows = tuple(
        (name, count(before), count(after), f"{after - before:+,}")
        for name, (before, after) in found.quantities.items()
    )
    return Table(
        headings=headings, rows=rows, right=frozenset(headings[1:]), notes=(LABEL, found.text)
    )


def agreement_table(agreed: Sequence[Agreement]) -> Table:
    """How far each graph's output lies from that of the first."""
    modes = list(agreed[0].furthest)
    headings = ("largest difference of outputs", *modes)
    rows = tuple((one.name, *(f"{one.furthest[mode]:.3g}" for mode in modes)) for one in agreed)
    sizes = ", ".join(f"{mode} {size:.3g}" for mode, size in agreed[0].largest.items())
    notes = (f"from the first graph, whose largest output is: {sizes}",)
    return Table(headings=headings, rows=rows, right=frozenset(modes), notes=notes)


def budget_lines(broken: Sequence[Exceeded]) -> list[Shown]:
    """What a budget says."""
    if not broken:
        return [("held", "within the budget")]
    return [("broken", f"over the budget: {one.text}") for one in broken]
