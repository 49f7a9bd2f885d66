"""What each MIL operation is called in the graph of an audit, and its attributes there."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

WORDS: Final = """
    abs acos add asin atan atanh cast ceil clamped_relu clip cos cosh dequantize elu equal erf exp
    exp2 floor floor_div gelu greater greater_equal inverse leaky_relu less less_equal
    linear_activation log logical_and logical_not logical_or logical_xor maximum minimum mod mul
    not_equal pow quantize real_div relu relu6 round rsqrt scaled_tanh select sigmoid sigmoid_hard
    sign silu sin sinh softplus softsign sqrt square sub tan tanh threshold thresholded_relu
    """
ELEMENTWISE: Final = frozenset(WORDS.split())
NAMED: Final = {
    "matmul": "matmul",
    "einsum": "einsum",
    "linear": "linear",
    "conv": "conv",
    "scaled_dot_product_attention": "attention",
    "softmax": "softmax",
    "reduce_sum": "sum",
    "tile": "tile",
    "reshape": "view",
    "reshape_like": "view",
    "expand_dims": "view",
    "squeeze": "view",
    "identity": "view",
    "transpose": "transpose",
    "concat": "concat",
    "stack": "stack",
    "read_state": "read_state",
    "coreml_update_state": "write_state",
    "slice_update": "update",
}
Index = tuple[slice | int, ...]


def kind_of(op: Any) -> str:
    """The kind of a MIL operation; what depends on numbers known only at a call is opaque."""
    name: str = op.op_type
    if name in ELEMENTWISE:
        return "elementwise"
    match name:
        case "tile":
            return "tile" if _number(op, "reps") is not None else "opaque"
        case "softmax" | "reduce_sum" | "transpose":
            pass
        case "split":
            return "split" if _split_sizes(op) is not None else "opaque"
        case "slice_by_index" | "slice_by_size":
            return "slice" if _index(op) is not None else "opaque"
        case "gather":
            plain = not _number(op, "batch_dims") and _axis(op) is not None
            return "gather" if plain and _number(op, "indices") is not None else "opaque"
        case "slice_update":
            return "update"
    return NAMED.get(name, "opaque")


def attributes_of(op: Any, kind: str) -> dict[str, Any]:
    """The attributes that ``equivalence.audit.graph`` lists for the kind."""
    match kind:
        case "matmul":
            names = ("transpose_x", "transpose_y")
            return {name: bool(_number(op, name)) for name in names}
        case "einsum":
            return {"equation": str(_number(op, "equation"))}
        case "conv":
            return {"groups": int(_number(op, "groups") or 1)}
        case "concat":
            # Reshaping a stack becomes this: the operands' slices take turns.
            interleave = bool(_number(op, "interleave"))
            return {"axis": int(_number(op, "axis")), "interleave": interleave}
        case "softmax" | "stack":
            return {"axis": int(_number(op, "axis"))}
        case "sum":
            axes = _number(op, "axes")
            return {"axes": None if axes is None else tuple(int(a) for a in np.ravel(axes))}
        case "tile":
            return {"reps": tuple(int(r) for r in np.ravel(_number(op, "reps")))}
        case "transpose":
            return {"perm": tuple(int(p) for p in np.ravel(_number(op, "perm")))}
        case "split":
            return {"axis": _axis(op), "sizes": _split_sizes(op)}
        case "slice":
            return {"index": _index(op)}
        case "gather":
            return {"axis": _axis(op), "indices": np.asarray(_number(op, "indices"))}
    return {}


def _split_sizes(op: Any) -> tuple[int, ...] | None:
    """The sizes of the parts; None where they are known only at a call."""
    axis = _axis(op)
    sizes = [] if axis is None else [var.shape[axis] for var in op.outputs]
    whole = sizes and all(isinstance(size, int | np.integer) for size in sizes)
    return tuple(int(size) for size in sizes) if whole else None


def _number(op: Any, name: str) -> Any:
    var = op.inputs.get(name)
    return None if var is None else var.val


def _axis(op: Any) -> int | None:
    axis = _number(op, "axis")
    return 0 if axis is None and op.op_type == "gather" else None if axis is None else int(axis)


def _index(op: Any) -> Index | None:
    """The slice as numpy takes it; None where it is known only at a call."""
    begin = _number(op, "begin")
    if begin is None:
        return None
    begin = [int(b) for b in np.ravel(begin)]
    if op.op_type == "slice_by_size":
        size = _number(op, "size")
        if size is None:
            return None
        sizes = [int(s) for s in np.ravel(size)]
        return tuple(
            slice(b, None if s == -1 else b + s) for b, s in zip(begin, sizes, strict=True)
        )
    end = _number(op, "end")
    if end is None:
        return None
    ends = [int(e) for e in np.ravel(end)]
    count = len(begin)
    stride = _listed(op, "stride", count, 1)
    open_begin, open_end = (_listed(op, f"{end}_mask", count, 0) for end in ("begin", "end"))
    squeezed = _listed(op, "squeeze_mask", count, 0)
    found: list[slice | int] = []
    for axis in range(count):
        if squeezed[axis]:
            found.append(begin[axis])
            continue
        first = None if open_begin[axis] else begin[axis]
        last = None if open_end[axis] else ends[axis]
        if stride[axis] < 0 and last is not None and last < 0:
            return None  # numpy would count it from the end
        found.append(slice(first, last, stride[axis]))
    return tuple(found)


def _listed(op: Any, name: str, count: int, default: int) -> list[int]:
    value = _number(op, name)
    return [default] * count if value is None else [int(v) for v in np.ravel(value)]
