"""A graph as an audit sees it: values with shapes, and the operations between them.

Nothing here knows where a graph comes from. A reader (``read_mil``, ``read_onnx``) names each
operation by its ``kind``, one of a small vocabulary with fixed attributes, and keeps the source's
own word for it as ``type``:

| kind | inputs | attributes |
|---|---|---|
| matmul | x, y | transpose_x, transpose_y |
| einsum | values | equation |
| linear | x, weight, bias | |
| conv | x, weight, bias | groups |
| attention | query, key, value, attn_mask | |
| softmax | x | axis |
| sum | x | axes |
| tile | x | reps |
| broadcast | x | |
| view | x | |
| transpose | x | perm |
| concat | values | axis, interleave |
| stack | values | axis |
| split | x | axis, sizes |
| slice | x | index, as numpy takes it |
| gather | x | axis, indices |
| elementwise | any | |
| read_state, write_state | state (and value) | |
| update | x, update | |
| opaque | any | |

A ``view`` changes a shape and neither the number nor the order of elements. ``elementwise``
broadcasts its inputs as numpy does. What is ``opaque`` computes something that an audit does not
look into.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final

from equivalence.errors import InvalidRequest

BITS: Final = {"bool": 8, "fp4": 4, "fp8": 8, "fp16": 16, "bf16": 16, "fp32": 32, "fp64": 64}
# Kinds whose output is what went in, in another shape or order or repeated.
MOVES: Final = frozenset(
    ("tile", "broadcast", "view", "transpose", "concat", "stack", "split", "slice", "gather")
)
PRODUCTS: Final = frozenset(("matmul", "einsum", "linear", "conv", "attention"))


@dataclass(eq=False, slots=True, kw_only=True)
class Value:
    """What one operation yields and others take; compared by identity.

    shape: None for a size that is not known before a call. constant: the numbers, of a stored
    value. stored_bits: what a stored value takes, compressed as it is.
    """

    name: str
    shape: tuple[int | None, ...]
    dtype: str
    producer: Op | None = None
    consumers: list[Op] = field(default_factory=list)
    constant: Any = None
    stored_bits: int = 0
    state: bool = False

    @property
    def is_constant(self) -> bool:
        """Whether it is stored in the graph."""
        return self.constant is not None or self.stored_bits > 0

    @property
    def sized(self) -> bool:
        """Whether every size is known."""
        return all(size is not None for size in self.shape)

    @property
    def elements(self) -> int:
        """How many elements; 0 where a size is not known."""
        return prod(size or 0 for size in self.shape)

    @property
    def bytes(self) -> int:
        """How many bytes; 0 where a size is not known."""
        return self.elements * bits_of(self.dtype) // 8

    @property
    def sizes(self) -> tuple[int, ...]:
        """The shape, of a value whose every size is known."""
        return tuple(size or 0 for size in self.shape)

    def __repr__(self) -> str:
        return f"Value({self.name}: {self.dtype}{list(self.shape)})"


@dataclass(eq=False, slots=True, kw_only=True)
class Op:
    """One operation; compared by identity. ``source`` is the reader's own object for it."""

    kind: str
    type: str
    name: str
    inputs: dict[str, tuple[Value, ...]]
    outputs: tuple[Value, ...] = ()
    attributes: dict[str, Any] = field(default_factory=dict)
    source: Any = None

    def given(self, name: str) -> Value:
        """The one value of an input."""
        return self.inputs[name][0]

    @property
    def operands(self) -> Iterator[Value]:
        """Every value that goes in, in order."""
        return (value for values in self.inputs.values() for value in values)

    @property
    def output(self) -> Value:
        """The first value that comes out."""
        return self.outputs[0]

    def __repr__(self) -> str:
        return f"Op({self.type} {self.name})"


@dataclass(slots=True, kw_only=True)
class Graph:
    """One function: its operations stand after those whose values they take.

    constants: every stored value, those that only describe an operation too. facts: what the
    reader knows of the whole, in words (``target``, ``converter``, ...).
    """

    ops: list[Op] = field(default_factory=list)
    inputs: list[Value] = field(default_factory=list)
    states: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    constants: list[Value] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)

    def add(self, op: Op) -> Op:
        """Put ``op`` at the end and connect it."""
        for value in dict.fromkeys(op.operands):
            value.consumers.append(op)
        for value in op.outputs:
            value.producer = op
        self.ops.append(op)
        return op


def bits_of(dtype: str) -> int:
    """The bits of one element of a dtype named as MIL names it: ``fp16``, ``int32``, ``uint4``."""
    if dtype in BITS:
        return BITS[dtype]
    digits = dtype.lstrip("abcdefghijklmnopqrstuvwxyz")
    if not digits.isdecimal():
        raise InvalidRequest(f"values of type {dtype} have no known size")
    return int(digits)
