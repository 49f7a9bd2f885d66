"""Tensors small enough to be followed by eye, one line each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from equivalence.dtypes import Array
from equivalence.report.numbers import value

MOST_ELEMENTS: Final = 64


def tensor_lines(tensors: Mapping[str, Array | None], dtype: str) -> Iterator[str]:
    """``query     [1, 2, 1, 1]  [[[[0]], [[0]]]]`` for each tensor that is there.

    A tensor of more than 64 elements is described by its shape and range alone.
    """
    for name, tensor in tensors.items():
        if tensor is not None:
            shape = str(list(tensor.shape))
            yield f"  {name:<10}{shape}  {_numbers(tensor, dtype)}"


def _numbers(tensor: Array, dtype: str) -> str:
    if tensor.size <= MOST_ELEMENTS:
        return _nested(tensor.tolist(), dtype)
    if tensor.dtype == bool:
        return f"{int(tensor.sum())} of {tensor.size} are True"
    finite = tensor[np.isfinite(tensor)]
    strange = tensor.size - finite.size
    within = f"from {finite.min():.4g} to {finite.max():.4g}" if finite.size else "nothing finite"
    return within + (f", {strange} not finite" if strange else "")


def _nested(part: Any, dtype: str) -> str:
    if isinstance(part, list):
        return f"[{', '.join(_nested(inner, dtype) for inner in part)}]"
    if isinstance(part, bool):
        return "T" if part else "F"
    return value(float(part), dtype)
