"""Constants of a graph: stored numbers, as parameters and as tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from equivalence.errors import Unsupported
from equivalence.mil.modes import Mode


def as_parameter(value: Any) -> Any:
    """A constant as plain Python: a number, a word, a flag, or a list of them."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [as_parameter(item) for item in value]
    return value


def as_tensor(value: Any, mil_type: str, mode: Mode) -> torch.Tensor:
    """A constant as a tensor of its type; ``double`` keeps the number that is stored."""
    array = np.asarray(value)
    if array.dtype.kind in "US":
        raise Unsupported(f"a constant of MIL type {mil_type} cannot be a tensor")
    if array.dtype == np.uint16:
        array = array.astype(np.int32)
    # Copied: a graph's own weights must not change when a tensor does.
    return torch.from_numpy(np.array(array, copy=True)).to(mode.stores(mil_type))
