"""Where a graph attends: the products that make scores, their softmax, the product with values.

Found by following values and by no name: a product whose result reaches a softmax makes scores,
and the next product that takes the softmax's result reads values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Final

import numpy as np
import numpy.typing as npt

from equivalence.audit.graph import Graph, Op, Value
from equivalence.audit.numbering import Cone, copies_of

# What may stand between a product and the softmax, or between the softmax and a product.
BETWEEN: Final = frozenset(("elementwise", "view", "transpose"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """One operand of a site, ``role`` "key" or "value", and the copies that it holds.

    The last two axes of an operand are a matrix, those before them are heads. copying: the
    operations that made copies, with how many times. heads: for each head that the product sees,
    which head of the source stands there; empty where it is not known.
    """

    role: str
    operand: Value
    copying: tuple[tuple[Op, int], ...] = ()
    heads: tuple[int, ...] = ()

    @property
    def kv_heads(self) -> int:
        """Distinct heads."""
        return len(set(self.heads))

    @property
    def order(self) -> str:
        """How heads are matched: "grouped", "interleaved", "equal", "one" or "other"."""
        return order_of(self.heads)


@dataclass(slots=True, kw_only=True)
class Site:
    """One attention.

    scores: the products that make scores (several where scores are a sum). weighted: the products
    with values. softmax: what normalises; for a fused operation all are that operation. between:
    the operations from the scores to the softmax, and from there to the values.
    """

    softmax: Op
    scores: list[Op] = field(default_factory=list)
    weighted: list[Op] = field(default_factory=list)
    between: list[Op] = field(default_factory=list)
    queries: list[Value] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)

    @property
    def fused(self) -> bool:
        """Whether one operation does it all."""
        return self.softmax.kind == "attention"

    def read(self, role: str) -> Read | None:
        """The first operand of a role."""
        return next((read for read in self.reads if read.role == role), None)


def order_of(heads: tuple[int, ...]) -> str:
    """The name of a map from heads to the heads that they read."""
    count, own = len(heads), len(set(heads))
    if not count or count % own:
        return "other"
    if own == count:
        return "equal"
    if own == 1:
        return "one"
    if heads == tuple(h // (count // own) for h in range(count)):
        return "grouped"
    return "interleaved" if heads == tuple(h % own for h in range(count)) else "other"


def sites_of(graph: Graph) -> list[Site]:
    """Every attention of a graph, in order."""
    found = []
    for op in graph.ops:
        if op.kind == "attention":
            site = Site(softmax=op, scores=[op], weighted=[op], queries=[op.given("query")])
            site.reads = [_read(role, op.given(role)) for role in ("key", "value")]
            found.append(site)
        elif op.kind == "softmax" or _divides_by_its_sum(op):
            made = _site(op)
            if made is not None:
                found.append(made)
    return found


def _divides_by_its_sum(op: Op) -> bool:
    """A softmax that is spelled out: exp(x) over the sum of exp(x)."""
    if op.type not in ("real_div", "Div") or len(op.inputs) < 2:
        return False
    above, below = list(op.operands)[:2]
    return below.producer is not None and (
        below.producer.kind == "sum" and below.producer.given("x") is above
    )


def _site(softmax: Op) -> Site | None:
    site = Site(softmax=softmax)
    start = next(softmax.operands)
    for product, path in _products_above(start):
        site.scores.append(product)
        site.between += [op for op in path if op not in site.between]
    paths: dict[int, Value] = {}
    for product, operand, path in _products_below(softmax.output):
        site.weighted.append(product)
        paths[id(product)] = operand
        site.between += [op for op in path if op not in site.between]
    if not site.scores or not site.weighted:
        return None
    axis = softmax.attributes.get("axis", -1)
    rank = len(start.shape)
    for product in site.scores:
        query, key = _query_and_key(product, last=axis not in (-2, rank - 2))
        site.queries.append(query)
        site.reads.append(_read("key", key))
    for product in site.weighted:
        value = next(v for v in _factors(product) if v is not paths[id(product)])
        site.reads.append(_read("value", value))
    return site


def _factors(product: Op) -> list[Value]:
    if product.kind == "einsum":
        return list(product.inputs["values"])
    return [product.given("x"), product.given("y")]


def _products_above(value: Value) -> Iterator[tuple[Op, list[Op]]]:
    """The products of two computed values that ``value`` comes from, and what lies between."""
    for op, path in _walk(value, up=True):
        if op.kind in ("matmul", "einsum") and not any(v.is_constant for v in _factors(op)):
            yield op, path


def _products_below(value: Value) -> Iterator[tuple[Op, Value, list[Op]]]:
    for op, path in _walk(value, up=False):
        if op.kind in ("matmul", "einsum"):
            last = path[-1].output if path else value
            operand = next((v for v in _factors(op) if v is last), None)
            if operand is None:
                operand = next(v for v in _factors(op) if v.producer in (*path, value.producer))
            yield op, operand, path


def _walk(value: Value, *, up: bool) -> Iterator[tuple[Op, list[Op]]]:
    """The first operations that are not of ``BETWEEN``, each with the path that leads there."""
    seen: set[int] = set()
    waiting: list[tuple[Value, list[Op]]] = [(value, [])]
    while waiting:
        at, path = waiting.pop(0)
        ops = ([at.producer] if at.producer is not None else []) if up else at.consumers
        for op in ops:
            if id(op) in seen:
                continue
            seen.add(id(op))
            if op.kind not in BETWEEN:
                yield op, path
            else:
                onward = op.operands if up else iter(op.outputs)
                waiting += [(v, [*path, op]) for v in onward if not v.is_constant]


def _query_and_key(product: Op, *, last: bool) -> tuple[Value, Value]:
    """Keys are what the softmax's axis counts: the last axis of the scores, as a rule."""
    first, second = _factors(product)[:2]
    if product.kind == "einsum":
        terms, _, result = product.attributes["equation"].replace(" ", "").partition("->")
        letter = result[-1] if last else result[-2]
        return (second, first) if letter in terms.split(",")[0] else (first, second)
    return (first, second) if last else (second, first)


def _read(role: str, operand: Value) -> Read:
    cone = Cone(operand)
    copies = copies_of(cone)
    if copies is None:
        return Read(role=role, operand=operand)
    return Read(
        role=role,
        operand=operand,
        copying=tuple((cone.ops[c.place], c.factor) for c in copies.copying),
        heads=_heads(copies.batch),
    )


def _heads(batch: npt.NDArray[np.int64]) -> tuple[int, ...]:
    """The heads of the first sequence: a fourth axis from the end is a batch."""
    first = batch if batch.ndim < 2 else batch[0]
    flat = first.reshape(prod(first.shape)).tolist()
    names: dict[int, int] = {}
    return tuple(names.setdefault(i, len(names)) for i in flat)
