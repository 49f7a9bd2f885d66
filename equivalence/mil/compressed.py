"""Weights that are stored compressed: what each ``constexpr_*`` operation stands for.

Written in numpy from the operations' documentation (coremltools' ``ops/defs/iOS16/constexpr_ops``
and ``iOS18/compression``), and not from the code with which coremltools decodes them. A scaled
weight is evaluated in float64 and rounded once, to the type that the operation gives it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from equivalence.dtypes import Array
from equivalence.errors import Unsupported

PREFIX: Final = "constexpr_"


def is_compressed(operation: Any) -> bool:
    """Whether an operation stands for a weight that is stored compressed."""
    return operation is not None and operation.op_type.startswith(PREFIX)


def decoded(var: Any) -> Array:
    """The weight that an output of a ``constexpr_*`` operation stands for, in its own type.

    What it is made of may be compressed itself. Raises Unsupported for an unknown operation.
    """
    kind = var.op.op_type
    if kind not in _DECODERS:
        raise Unsupported(f"weights stored by {kind} cannot be decoded")
    given = {name: _number(one) for name, one in var.op.inputs.items() if one is not None and name}
    made = _DECODERS[kind](**given)
    outputs = made if isinstance(made, tuple) else (made,)
    found: Array = outputs[[id(one) for one in var.op.outputs].index(id(var))]
    return found


def _number(var: Any) -> Any:
    """An input as numpy has it: a constant, a word, or what another operation stands for."""
    if var.val is None and is_compressed(var.op):
        return decoded(var)
    return var.val if isinstance(var.val, str) else np.asarray(var.val)


def unpacked(packed: Array, bits: int, count: int) -> Array:
    """``count`` numbers of ``bits`` bits, from bytes that are filled from their lowest bit up."""
    stream = np.unpackbits(packed.astype(np.uint8), bitorder="little")[: bits * count]
    weights = 1 << np.arange(bits, dtype=np.int64)
    return np.asarray(stream.reshape(count, bits).astype(np.int64) @ weights)


def _cast(source_val: Array, output_dtype: Any) -> Array:
    if str(output_dtype) != "fp32":
        raise Unsupported(f"constexpr_cast to {output_dtype} cannot be decoded")
    return np.asarray(source_val.astype(np.float32))


def _affine(quantized_data: Array, zero_point: Array, scale: Array, axis: Array) -> Array:
    """scale (data - zero point), each a number or one number for each index along ``axis``."""
    along = [1] * quantized_data.ndim
    along[int(axis)] = -1
    steps, zero = (
        one.astype(np.float64).reshape(along if one.ndim else ()) for one in (scale, zero_point)
    )
    return np.asarray((steps * (quantized_data.astype(np.float64) - zero)).astype(scale.dtype))


def _blockwise(data: Array, scale: Array, offset: Array | None = None) -> Array:
    """scale (data - offset), with one scale (and offset) for each block of the data."""
    zero = 0.0 if offset is None else _spread(offset.astype(np.float64), data.shape)
    steps = _spread(scale.astype(np.float64), data.shape)
    return np.asarray((steps * (data.astype(np.float64) - zero)).astype(scale.dtype))


def _spread(blocks: Array, shape: tuple[int, ...]) -> Array:
    """``blocks[floor(i / size), ...]`` for every index i of ``shape``."""
    places = [np.arange(n) // (n // count) for n, count in zip(shape, blocks.shape, strict=True)]
    return np.asarray(blocks[np.ix_(*places)])


def _looked_up(
    indices: Array,
    lut: Array,
    shape: Array | None = None,
    vector_axis: Array | None = None,
) -> Array:
    """The entry of a table for each index. iOS16 packs the bits and has one table (``shape``)."""
    if shape is not None:
        sizes = tuple(int(size) for size in shape)
        bits = int(lut.size).bit_length() - 1
        return np.asarray(lut[unpacked(indices, bits, int(np.prod(sizes)))].reshape(sizes))
    groups = lut.shape[: indices.ndim]
    places = np.ix_(*(np.arange(n) // (n // g) for n, g in zip(indices.shape, groups, strict=True)))
    entries = lut[(*places, indices.astype(np.int64))]  # [..., vector]
    if vector_axis is None:
        return np.asarray(entries[..., 0])
    axis = int(vector_axis) % indices.ndim
    wide = list(indices.shape)
    wide[axis] *= lut.shape[-1]
    return np.asarray(np.moveaxis(entries, -1, axis + 1).reshape(wide))


def _dense(nonzero_data: Array, mask: Array, shape: Array | None = None) -> Array:
    """The numbers where the mask is set, in order, and zero elsewhere. iOS16 packs the mask."""
    if shape is not None:
        sizes = tuple(int(size) for size in shape)
        mask = unpacked(mask, 1, int(np.prod(sizes))).reshape(sizes)
    filled = np.zeros(mask.shape, nonzero_data.dtype)
    filled[mask != 0] = nonzero_data
    return filled


def _sparse_looked_up(
    indices_mask: Array, indices_nonzero_data: Array, lut: Array, vector_axis: Array | None = None
) -> tuple[Array, Array]:
    """The mask, as wide as the vectors make it, and the entries where it is set."""
    indices = _dense(indices_nonzero_data, indices_mask)
    values = _looked_up(indices, lut, vector_axis=vector_axis)
    mask = indices_mask
    if vector_axis is not None:
        mask = np.repeat(mask, lut.shape[-1], int(vector_axis))
    return mask, values[mask != 0]


def _sparse_blockwise(
    data_mask: Array, nonzero_data: Array, scale: Array, offset: Array | None = None
) -> tuple[Array, Array]:
    dense = _blockwise(_dense(nonzero_data, data_mask), scale, offset)
    return data_mask, dense[data_mask != 0]


_DECODERS: Final[dict[str, Callable[..., Any]]] = {
    f"{PREFIX}cast": _cast,
    f"{PREFIX}affine_dequantize": _affine,
    f"{PREFIX}blockwise_shift_scale": _blockwise,
    f"{PREFIX}lut_to_dense": _looked_up,
    f"{PREFIX}sparse_to_dense": _dense,
    f"{PREFIX}lut_to_sparse": _sparse_looked_up,
    f"{PREFIX}sparse_blockwise_shift_scale": _sparse_blockwise,
}
