"""Every operation of a graph that repeats elements, what it repeats, and what that costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from equivalence.audit.flows import readers
from equivalence.audit.graph import Graph, Op, Value
from equivalence.audit.sites import BETWEEN, Site


@dataclass(slots=True, kw_only=True)
class Replication:
    """One operation whose result holds each element ``factor`` times.

    roles: what it repeats: "key" or "value" where its result is read as keys by a product that
    makes scores, or as values by the product behind the softmax; else "query", "mask" or "other".
    sites: which attentions read it. matched: heads before and after, where heads are repeated.
    written, read: logical bytes, read by every operation that takes it.
    """

    op: Op
    factor: int
    roles: list[str] = field(default_factory=list)
    sites: list[int] = field(default_factory=list)
    matched: tuple[int, int] | None = None
    order: str = ""
    written: int = 0
    read: int = 0

    @property
    def of_heads(self) -> bool:
        """Whether it matches key/value heads to query heads."""
        return self.matched is not None


def replications_of(graph: Graph, sites: Sequence[Site]) -> list[Replication]:
    """All of them, in the order of the graph."""
    found: dict[int, Replication] = {}
    for index, site in enumerate(sites):
        for read in site.reads:
            heads = (read.kv_heads, len(read.heads))
            for op, factor in read.copying:
                one = found.setdefault(id(op), _replication(op, factor))
                one.roles += [read.role] if read.role not in one.roles else []
                one.sites += [index] if index not in one.sites else []
                if heads[0] < heads[1]:
                    one.matched, one.order = heads, read.order
    for op in graph.ops:
        factor = _repeats(op)
        if factor > 1 and id(op) not in found:
            found[id(op)] = _replication(op, factor)
            found[id(op)].roles = [_role(op, sites)]
    places = {id(op): place for place, op in enumerate(graph.ops)}
    # What a fused operation does inside stands in no place of its own.
    return sorted(found.values(), key=lambda one: places.get(id(one.op), len(places)))


def _replication(op: Op, factor: int) -> Replication:
    size = op.output.bytes
    return Replication(
        op=op, factor=factor, written=size, read=size * len(list(readers(op.output)))
    )


def _repeats(op: Op) -> int:
    """How often an operation repeats what it is given, as far as it alone tells."""
    if op.kind in ("tile", "broadcast"):
        before = op.given("x").elements
        return op.output.elements // before if before else 1
    if op.kind in ("concat", "stack"):
        values = op.inputs["values"]
        return len(values) // len({id(value) for value in values})
    if op.kind == "gather":
        indices = np.asarray(op.attributes["indices"])
        return int(indices.size // max(1, np.unique(indices).size))
    return 1


def _role(op: Op, sites: Sequence[Site]) -> str:
    """ "query" or "mask" where what is repeated ends in the queries or scores of an attention."""
    reached = {id(value) for value in _onward(op.output)}
    for site in sites:
        if any(id(query) in reached for query in site.queries):
            return "query"
        ends = (*site.between, site.softmax)
        if any(id(value) in reached for end in ends for value in end.operands):
            return "mask"
    return "other"


def _onward(value: Value) -> Iterator[Value]:
    """A value, and what is made of it element by element."""
    seen: set[int] = set()
    waiting = [value]
    while waiting:
        at = waiting.pop()
        if id(at) in seen:
            continue
        seen.add(id(at))
        yield at
        waiting += [out for op in at.consumers if op.kind in BETWEEN for out in op.outputs]
