"""What each ONNX operator is called in the graph of an audit, its inputs and attributes there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from equivalence.audit.graph import Value

WORDS: Final = """
    Abs Add And BitShift Cast CastLike Ceil Celu Clip Cos Div Elu Equal Erf Exp Floor Gelu Greater
    GreaterOrEqual HardSigmoid HardSwish IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Min Mish
    Mod Mul Neg Not Or PRelu Pow Reciprocal Relu Round Selu Sigmoid Sign Sin Softplus Softsign
    Sqrt Sub Sum Swish Tan Tanh Where Xor
    """
ELEMENTWISE: Final = frozenset(WORDS.split())
VIEWS: Final = frozenset(("Reshape", "Unsqueeze", "Squeeze", "Flatten", "Identity"))
NAMED: Final = {
    "MatMul": "matmul",
    "Einsum": "einsum",
    "Conv": "conv",
    "Softmax": "softmax",
    "Concat": "concat",
    "Transpose": "transpose",
    "Expand": "broadcast",
    "TensorScatter": "update",
}
INPUTS: Final = {
    "matmul": ("x", "y"),
    "conv": ("x", "weight", "bias"),
    "update": ("x", "update", "place"),
    "elementwise": ("x", "y", "a", "b"),
}
SEVERAL: Final = ("concat", "einsum")


class Node:
    """A node with its attributes and inputs at hand."""

    def __init__(self, proto: Any, inputs: Sequence[Value | None]) -> None:
        from onnx import helper

        self.type: Final[str] = proto.op_type
        self.domain: Final[str] = proto.domain
        self.inputs: Final = tuple(inputs)
        self.attributes: Final[Mapping[str, Any]] = {
            a.name: helper.get_attribute_value(a) for a in proto.attribute
        }

    def value(self, place: int) -> Value | None:
        """An input by its place; None where it is left out."""
        return self.inputs[place] if place < len(self.inputs) else None

    def numbers(self, place: int, attribute: str = "") -> list[int] | None:
        """Whole numbers that are stored: of an input, or of an attribute of older opsets."""
        if attribute in self.attributes:
            return [int(n) for n in np.ravel(self.attributes[attribute])]
        value = self.value(place)
        if value is None or value.constant is None:
            return None
        return [int(n) for n in np.ravel(value.constant)]


def kind_of(node: Node) -> str:
    """The kind of a node; what depends on numbers known only at a call is opaque."""
    if node.domain not in ("", "ai.onnx"):
        return "opaque"
    name, first = node.type, node.value(0)
    if name in ELEMENTWISE:
        return "elementwise"
    if name in VIEWS:
        return "view"
    match name:
        case "Tile":
            return "tile" if node.numbers(1) is not None else "opaque"
        case "ReduceSum":
            return "sum"
        case "Split":
            return "split"
        case "Slice":
            return "slice" if _index(node) is not None else "opaque"
        case "Gather":
            return "gather" if node.numbers(1) is not None else "opaque"
        case "Attention":
            ranked = first is not None and len(first.shape) in (3, 4)
            return "attention" if ranked and node.value(2) is not None else "opaque"
    return NAMED.get(name, "opaque")


def inputs_of(node: Node, kind: str) -> dict[str, tuple[Value, ...]]:
    """The inputs of a node under the names of its kind."""
    given = [value for value in node.inputs if value is not None]
    if kind in SEVERAL:
        return {"values": tuple(given)}
    names = INPUTS.get(kind, ("x",))
    named: dict[str, tuple[Value, ...]] = {}
    for place, value in enumerate(node.inputs):
        if value is not None:
            name = names[place] if place < len(names) else f"input_{place}"
            named[name] = (value,)
    return named


def attributes_of(node: Node, kind: str, outputs: Sequence[Value]) -> dict[str, Any]:
    """The attributes that ``equivalence.audit.graph`` lists for the kind."""
    first = node.value(0)
    rank = len(first.shape) if first is not None else 0
    axis = int(node.attributes.get("axis", 0))
    match kind:
        case "matmul":
            return {"transpose_x": False, "transpose_y": False}
        case "einsum":
            return {"equation": node.attributes["equation"].decode()}
        case "conv":
            return {"groups": int(node.attributes.get("group", 1))}
        case "concat":
            return {"axis": axis, "interleave": False}
        case "softmax":
            return {"axis": int(node.attributes.get("axis", -1))}
        case "sum":
            axes = node.numbers(1, "axes")
            return {"axes": None if axes is None else tuple(axes)}
        case "tile":
            return {"reps": tuple(node.numbers(1) or ())}
        case "transpose":
            return {"perm": tuple(node.attributes.get("perm") or range(rank)[::-1])}
        case "split":
            return {"axis": axis, "sizes": tuple(value.shape[axis] for value in outputs)}
        case "slice":
            return {"index": _index(node)}
        case "gather":
            indices = node.value(1)
            return {"axis": axis, "indices": None if indices is None else indices.constant}
    return {}


def _index(node: Node) -> tuple[slice, ...] | None:
    """The slice as numpy takes it; None where it is known only at a call."""
    starts, ends = node.numbers(1, "starts"), node.numbers(2, "ends")
    first = node.value(0)
    if starts is None or ends is None or first is None:
        return None
    axes, steps = node.numbers(3, "axes"), node.numbers(4)
    if (axes is None and node.value(3) is not None) or (
        steps is None and node.value(4) is not None
    ):
        return None
    found = [slice(None)] * len(first.shape)
    for place, (start, end) in enumerate(zip(starts, ends, strict=True)):
        axis, step = (axes[place] if axes else place), (steps[place] if steps else 1)
        far = end <= -(2**31) if step < 0 else end >= 2**31 - 1
        found[axis] = slice(start, None if far else end, step)
    return tuple(found)
