"""How a tensor lies in memory: the same numbers behind different strides."""

from __future__ import annotations

import numpy as np

from equivalence.dtypes import Array
from equivalence.errors import InvalidRequest


def lay_out(array: Array, memory: str) -> Array:
    """A rank-4 ``[a, b, c, d]`` view that holds ``array`` and lies in memory as asked.

    contiguous: C order. bshd: the two middle axes are swapped in storage, as after
    ``x.view(B, S, H, D).transpose(1, 2)``. transposed: the last axis has a stride above one.
    sliced: a window of a larger buffer whose other elements are NaN. expanded: axis 1 has stride
    zero, so every head must hold the same numbers.
    """
    match memory:
        case "contiguous":
            return np.ascontiguousarray(array)
        case "bshd":
            return np.ascontiguousarray(array.swapaxes(1, 2)).swapaxes(1, 2)
        case "transposed":
            return np.ascontiguousarray(array.swapaxes(2, 3)).swapaxes(2, 3)
        case "sliced":
            a, b, c, d = array.shape
            buffer = np.full((a, b, c + 3, d + 5), np.nan, array.dtype)
            window = buffer[:, :, 1 : 1 + c, 2 : 2 + d]
            window[...] = array
            return window
        case "expanded":
            # Not broadcast_to: its view is read-only, and torch warns about that.
            first = np.ascontiguousarray(array[:, :1])
            a, _, c, d = first.strides
            return np.lib.stride_tricks.as_strided(first, array.shape, (a, 0, c, d))
    raise InvalidRequest(f"memory={memory!r} is not a known layout")


def buffer_of(array: Array) -> Array:
    """The whole storage behind a view made by :func:`lay_out`, to see whether it was written."""
    base = array
    while isinstance(base.base, np.ndarray):
        base = base.base
    return base
