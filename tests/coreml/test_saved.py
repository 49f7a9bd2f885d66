"""Through a package on disk and back: the same bits, states and flexible lengths included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from equivalence.converters.case import ConverterCase
from equivalence.converters.inputs import arguments, dynamic_shapes_of, module_of
from equivalence.coreml.converted import convert
from equivalence.coreml.saved import convert_saved
from equivalence.masks import Mask

TWO: dict[str, Any] = {"num_kv_heads": 2, "group_size": 2, "head_dim": 4, "values": "normal"}
CASES = [
    ConverterCase(formulation="repeat_kv", kv_len=5, dtype="float16", mask=Mask(), **TWO),
    ConverterCase(formulation="sdpa_fold", kv_len=5, shapes="range", **TWO),
    ConverterCase(formulation="cache_slice", kv_len=3, spare=1, dtype="float16", **TWO),
]


@pytest.mark.parametrize(
    "case",
    [pytest.param(CASES[0], marks=pytest.mark.slow), *CASES[1:]],
    ids=lambda case: case.formulation,
)
def test_a_saved_package_computes_the_same_bits(case: ConverterCase) -> None:
    calls = [[torch.from_numpy(a) for a in given.values()] for given in arguments(case)]
    options: dict[str, Any] = {"dynamic_shapes": dynamic_shapes_of(case) or None}
    fast = convert(module_of(case), calls[0], **options)
    slow = convert_saved(module_of(case), calls[0], **options)
    for tensors in calls:
        first, second = fast(*tensors), slow(*tensors)
        assert np.array_equal(first.numpy(), second.numpy())
