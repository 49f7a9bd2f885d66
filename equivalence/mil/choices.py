"""Operations that choose: between two tensors, or by one-hot rows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from equivalence.mil.registry import operation


@operation("select", tensors="cond a b")
def select(cond: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """``a`` where the condition holds, ``b`` elsewhere."""
    return torch.where(cond, a, b)


@operation("one_hot", tensors="indices")
def one_hot(
    indices: Tensor,
    one_hot_vector_size: int,
    axis: int = -1,
    on_value: Any = 1,
    off_value: Any = 0,
) -> Tensor:
    """``on_value`` at each index, ``off_value`` elsewhere, along a new axis."""
    place = axis % (indices.ndim + 1)
    size = [1] * (indices.ndim + 1)
    size[place] = one_hot_vector_size
    hit = indices.unsqueeze(place) == torch.arange(one_hot_vector_size).reshape(size)
    return torch.where(hit, on_value, off_value)


@operation("non_zero")
def non_zero(x: Tensor) -> Tensor:
    """The indices of what is not zero, one row each."""
    return torch.nonzero(x)
