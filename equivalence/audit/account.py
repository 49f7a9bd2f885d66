"""The account of one graph: what it holds, what it repeats, and what its shapes cost."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from equivalence.audit.flows import Flow, flow_of, macs_of
from equivalence.audit.graph import PRODUCTS, Graph, Op, Value
from equivalence.audit.replication import Replication, replications_of
from equivalence.audit.shapes_of_sites import SiteShape, shape_of
from equivalence.audit.sites import Site, sites_of

# What takes an element from one place to another; views are free and repeats are counted apart.
REARRANGING = ("transpose", "gather", "slice", "split", "concat", "stack")


@dataclass(frozen=True, slots=True, kw_only=True)
class StateAccount:
    """One state: its size, how often it is written, and how many bytes those writes change."""

    name: str
    bytes: int
    writes: int
    updated: int


@dataclass(slots=True, kw_only=True)
class Account:
    """What one graph holds and costs. Bytes are logical: see ``equivalence.audit.flows.LABEL``.

    macs: multiply-accumulates of all products; attention_macs: of scores and weighted values.
    constant_bytes: of every stored value, compressed as it is. unsized: values of unknown size,
    counted as empty. program: what the graph was read from, to be evaluated.
    """

    name: str
    graph: Graph
    sites: Sequence[Site]
    shapes: Sequence[SiteShape | None]
    replications: Sequence[Replication]
    histogram: Mapping[str, int]
    casts: Mapping[str, int]
    rearranged: Mapping[str, tuple[int, int]]
    states: Sequence[StateAccount]
    flow: Flow
    macs: int
    attention_macs: int
    constant_bytes: int
    weights: str
    unsized: int
    conditions: dict[str, str] = field(default_factory=dict)
    program: Any = None

    @property
    def total_ops(self) -> int:
        """Operations, without those that only hold a constant."""
        return sum(self.histogram.values())

    @property
    def with_constants(self) -> int:
        """Operations as a program lists them: each stored value too, twice where compressed."""
        facts = self.graph.facts
        decoded = sum(int(facts[name]) for name in facts if name.startswith("compressed by "))
        return self.total_ops + len(self.graph.constants) + decoded

    @property
    def of_heads(self) -> list[Replication]:
        """The operations that match key/value heads to query heads by repeating them."""
        return [one for one in self.replications if one.of_heads]

    @property
    def undecided(self) -> bool:
        """Whether some attention, or the graph as a whole, could not be followed to its heads."""
        reads = [read for site in self.sites for read in site.reads]
        return not reads or any(not read.heads for read in reads)

    @property
    def head_bytes(self) -> int:
        """The logical bytes that those operations write."""
        return sum(one.written for one in self.of_heads)

    @property
    def head_bytes_read(self) -> int:
        """The logical bytes that are read of what they wrote."""
        return sum(one.read for one in self.of_heads)

    @property
    def fused(self) -> int:
        """Attentions that are one operation."""
        return sum(site.fused for site in self.sites)

    @property
    def state_writes(self) -> int:
        """Writes to any state."""
        return sum(state.writes for state in self.states)


def account_of(graph: Graph, *, name: str, conditions: Mapping[str, str] | None = None) -> Account:
    """Count everything that an audit reports."""
    sites = sites_of(graph)
    flows = [flow_of(op) for op in graph.ops]
    products = {id(op): op for site in sites for op in (*site.scores, *site.weighted)}
    account = Account(
        name=name,
        graph=graph,
        sites=sites,
        shapes=[shape_of(site) for site in sites],
        replications=replications_of(graph, sites),
        histogram=dict(sorted(Counter(op.type for op in graph.ops).items())),
        casts=_casts(graph),
        rearranged=_rearranged(graph),
        states=_states(graph),
        flow=Flow(
            written=sum(flow.written for flow in flows),
            read=sum(flow.read for flow in flows),
            stored=sum(flow.stored for flow in flows),
        ),
        macs=sum(macs_of(op) for op in graph.ops),
        attention_macs=sum(macs_of(op) for op in products.values()),
        constant_bytes=sum((value.stored_bits + 7) // 8 for value in graph.constants),
        weights=_weights(graph),
        unsized=sum(not value.sized for op in graph.ops for value in op.outputs),
    )
    account.conditions = {**_conditions(account), **dict(conditions or {})}
    return account


def _casts(graph: Graph) -> dict[str, int]:
    found = Counter(
        f"{op.given('x').dtype} to {op.output.dtype}"
        for op in graph.ops
        if op.type in ("cast", "Cast")
    )
    return dict(sorted(found.items()))


def _rearranged(graph: Graph) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for op in graph.ops:
        if op.kind in REARRANGING:
            count, size = found.get(op.kind, (0, 0))
            found[op.kind] = (count + 1, size + sum(v.bytes for v in op.outputs))
    return dict(sorted(found.items()))


def _states(graph: Graph) -> list[StateAccount]:
    found = []
    for state in graph.states:
        writes = [op for op in state.consumers if op.kind == "write_state"]
        found.append(
            StateAccount(
                name=state.name,
                bytes=state.bytes,
                writes=len(writes),
                updated=sum(_updated(op) for op in writes),
            )
        )
    return found


def _updated(write: Op) -> int:
    value = write.given("value")
    made = value.producer
    return made.given("update").bytes if made is not None and made.kind == "update" else value.bytes


def _weights(graph: Graph) -> str:
    """A fingerprint of the stored numbers that products multiply by."""
    prints = []
    for op in graph.ops:
        if op.kind in PRODUCTS:
            prints += [_print(value) for value in op.operands if value.elements > 1]
    prints = [p for p in prints if p]
    return f"{zlib.crc32(repr(sorted(prints)).encode()):08x}" if prints else "none"


def _print(value: Value) -> str:
    if not value.is_constant:
        return ""
    stored = np.ascontiguousarray(value.constant).tobytes() if value.constant is not None else b""
    return f"{value.shape} {value.dtype} {value.stored_bits} {zlib.crc32(stored)}"


def _conditions(account: Account) -> dict[str, str]:
    """What a graph was made under, as far as it shows."""
    graph, shapes = account.graph, [shape for shape in account.shapes if shape is not None]
    about = {
        "layers": str(len(account.sites)),
        "cache": "state" if graph.states else "inputs",
        "weights": account.weights,
        "compression": _said(
            [f"{key.removeprefix('compressed by ')} {count}" for key, count in graph.facts.items()
             if key.startswith("compressed by ")] or ["none"]
        ),
        **{key: text for key, text in graph.facts.items() if not key.startswith("compressed by ")},
    }  # fmt: skip
    for name, values in (
        ("batch size", [shape.batch_size for shape in shapes]),
        ("query heads", [shape.num_heads for shape in shapes]),
        ("key/value heads", [shape.num_kv_heads for shape in shapes]),
        ("query length", [shape.q_len for shape in shapes]),
        ("context", [shape.kv_len for shape in shapes]),
        ("head dim", [shape.head_dim for shape in shapes]),
        ("precision", [shape.dtype for shape in shapes]),
        ("heads matched by", [shape.means for shape in shapes]),
        ("head order", [shape.order for shape in shapes if shape.order != "equal"]),
    ):
        about[name] = _said([str(value) for value in values])
    return about


def _said(values: Sequence[str]) -> str:
    return " and ".join(dict.fromkeys(values)) or "unknown"
