"""What a module computes before it is converted."""

from __future__ import annotations

import numpy as np
import torch

from equivalence.converters.case import ConverterCase
from equivalence.converters.inputs import arguments, module_of
from equivalence.dtypes import Array


def source_output(case: ConverterCase) -> Array:
    """The module of ``case`` in torch, on the numbers of ``case``; float64, ``[B, H, Sq, Dv]``.

    Run in float32 at least: what is asked is what the module means.
    """
    module = module_of(case).float()
    rows = []
    with torch.no_grad():
        for given in arguments(case):
            tensors = []
            for array in given.values():
                is_number = array.dtype.kind not in "ib"
                tensors.append(torch.from_numpy(array.astype(np.float32) if is_number else array))
            rows.append(module(*tensors).double().numpy())
    return np.concatenate(rows, axis=2) if len(rows) > 1 else rows[0]
