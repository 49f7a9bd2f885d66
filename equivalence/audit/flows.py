"""What a graph's shapes say of bytes and multiplications; of no machine.

Logical bytes: every operation reads its operands and writes its results once, each at its full
shape. A view, a state that is read and an update in place move nothing but what they update. None
of it is DRAM traffic or peak memory: fusion, caches and layouts decide about those.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from equivalence.audit.graph import Op, Value

LABEL = "logical bytes of the graph: not DRAM traffic, not peak memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """Logical bytes of one operation: of results, of computed operands, of stored operands."""

    written: int = 0
    read: int = 0
    stored: int = 0


def flow_of(op: Op) -> Flow:
    """The bytes that an operation moves."""
    if op.kind in ("view", "read_state", "write_state"):
        return Flow()
    stored = sum((v.stored_bits + 7) // 8 for v in operands(op) if v.is_constant)
    if op.kind == "update":
        written = op.given("update").bytes
        return Flow(written=written, read=written, stored=stored)
    written = sum(v.bytes for v in op.outputs)
    if op.kind in ("slice", "gather", "split"):  # only what is taken is read
        return Flow(written=written, read=written, stored=stored)
    read = sum(v.bytes for v in operands(op) if not v.is_constant)
    return Flow(written=written, read=read, stored=stored)


def operands(op: Op) -> Iterator[Value]:
    """The operands that are data: tensors, and no shapes, axes, flags or words."""
    for name, values in op.inputs.items():
        for value in values:
            if not value.is_constant or (
                name in ("x", "y", "a", "b", "weight", "bias", "values", "indices", "attn_mask")
                and value.elements > 1
            ):
                yield value


def readers(value: Value) -> Iterator[Op]:
    """The operations that read a value, through views of it."""
    for op in value.consumers:
        if op.kind == "view":
            yield from readers(op.output)
        else:
            yield op


def macs_of(op: Op) -> int:
    """Multiply-accumulates of a product; 0 where a size is not known."""
    if op.kind == "matmul":
        x = op.given("x")
        return op.output.elements * _size(x, -2 if op.attributes["transpose_x"] else -1)
    if op.kind == "linear":
        return op.output.elements * _size(op.given("x"), -1)
    if op.kind == "conv":
        return op.output.elements * prod(size or 0 for size in op.given("weight").shape[1:])
    if op.kind == "einsum":
        return _einsum(op)
    if op.kind == "attention":
        query, key = op.given("query"), op.given("key")
        scores = prod(size or 0 for size in query.shape[:-1]) * _size(key, -2)
        return scores * (_size(query, -1) + _size(op.given("value"), -1))
    return 0


def _size(value: Value, axis: int) -> int:
    return value.shape[axis] or 0


def _einsum(op: Op) -> int:
    terms = op.attributes["equation"].replace(" ", "").partition("->")[0].split(",")
    sizes: dict[str, int] = {}
    for term, value in zip(terms, op.inputs["values"], strict=True):
        for letter, size in zip(term, value.shape, strict=True):
            sizes[letter] = max(sizes.get(letter, 0), size or 0)
    return prod(sizes.values())
