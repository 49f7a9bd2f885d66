"""ONNX's Attention as one operation over heads, whatever the layout of its operands.

With three axes, ``[B, S, H * D]``, it parts heads itself; keys and values of a past go before the
new ones. Both happen inside the operator, so they are written down here behind its operands, and
not as operations of the graph: what they move is not counted, and what stands in front of them can
be followed.
"""

from __future__ import annotations

from typing import Any, Final

from equivalence.audit.graph import Op, Value
from equivalence.audit.onnx_kinds import Node

HEADS: Final = ("q_num_heads", "kv_num_heads", "kv_num_heads")
NAMES: Final = ("query", "key", "value")
PAST: Final = {"key": 4, "value": 5}


def attended(node: Node) -> dict[str, tuple[Value, ...]]:
    """query, key and value ``[B, H, S, D]`` as they are attended, and the mask if given."""
    found: dict[str, tuple[Value, ...]] = {}
    for place, (name, heads) in enumerate(zip(NAMES, HEADS, strict=True)):
        value = node.value(place)
        assert value is not None
        if len(value.shape) == 3:
            value = _parted(value, node.attributes.get(heads), name)
        past = node.value(PAST[name]) if name in PAST else None
        if past is not None:
            value = _behind(past, value, name)
        found[name] = (value,)
    mask = node.value(3)
    if mask is not None:
        found["attn_mask"] = (mask,)
    return found


def _parted(value: Value, heads: Any, name: str) -> Value:
    """``[B, S, H * D]`` -> ``[B, H, S, D]``."""
    batch_size, length, width = value.shape
    count = int(heads) if heads else None
    each = width // count if width is not None and count else None
    parted = Value(
        name=f"{name} by head", shape=(batch_size, length, count, each), dtype=value.dtype
    )
    _inside("view", parted, {"x": (value,)})
    turned = Value(name=f"{name} heads", shape=(batch_size, count, length, each), dtype=value.dtype)
    return _inside("transpose", turned, {"x": (parted,)}, perm=(0, 2, 1, 3))


def _behind(past: Value, new: Value, name: str) -> Value:
    """Both along their tokens, ``[B, H, past + new, D]``."""
    lengths = (past.shape[2], new.shape[2]) if len(past.shape) == 4 else (None, None)
    length = None if None in lengths else sum(n or 0 for n in lengths)
    batch_size, heads, _, each = new.shape
    whole = Value(
        name=f"{name} behind its past", shape=(batch_size, heads, length, each), dtype=new.dtype
    )
    return _inside("concat", whole, {"values": (past, new)}, axis=2, interleave=False)


def _inside(
    kind: str, output: Value, inputs: dict[str, tuple[Value, ...]], **attributes: Any
) -> Value:
    """Connect ``output`` with what it is made of, and with no graph."""
    op = Op(
        kind=kind, type="Attention", name=output.name, inputs=inputs, outputs=(output,),
        attributes=attributes,
    )  # fmt: skip
    output.producer = op
    for value in dict.fromkeys(op.operands):
        value.consumers.append(op)
    return output
