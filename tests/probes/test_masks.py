"""What masks mean, and what hidden slots and empty rows hold: of right and of wrong kernels."""

from __future__ import annotations

import math

import pytest
import torch

from equivalence.probes.empty_rows import empty_rows
from equivalence.probes.masks import bool_mask, float_mask, mask_axes
from equivalence.probes.nans import nans
from equivalence.probes.sentinel import mask_constant
from tests.probes.asking import asker


@pytest.mark.parametrize(
    ("fault", "meaning"),
    [
        ({}, "attend"),
        ({"mask": lambda m, *_: ~m}, "hide"),
        ({"mask": lambda m, *_: m.float()}, "number"),
        ({"mask": lambda m, *_: torch.ones_like(m)}, "ignored"),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_bool_mask(fault, meaning, dtype):
    assert bool_mask(asker(dtype, **fault)).meaning == meaning


def test_float_mask_factor():
    assert float_mask(asker()).factor == pytest.approx(1, abs=1e-5)
    assert float_mask(asker(mask=lambda m, *_: m / 4)).factor == pytest.approx(0.25, abs=1e-5)
    assert not float_mask(asker(mask=lambda m, *_: m.clamp(min=-3))).hides


def test_mask_axes():
    right = mask_axes(asker())
    assert right.batch_right
    assert right.head_right

    def as_heads(mask, query_shape, key_shape, group):
        if mask.shape[0] == key_shape[1] and mask.shape[1] == 1:
            return mask.transpose(0, 1).repeat_interleave(group, 1)
        return mask

    assert mask_axes(asker(mask=as_heads)).by_batch == ((0, 0, 1, 1), (0, 0, 1, 1))

    def folded(mask, query_shape, key_shape, group):
        if mask.shape[1] == 1:
            return mask
        return mask.unflatten(1, (group, -1)).transpose(1, 2).flatten(1, 2)

    assert mask_axes(asker(mask=folded)).by_head == (0, 2, 4, 1, 3, 5)


@pytest.mark.parametrize("value", [-1e4, -1e9, -100.0])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_mask_constant(value, dtype):
    assert mask_constant(asker(dtype)).value == -math.inf
    assert mask_constant(asker(dtype, hidden=value)).value == value


def test_nan_leaks_and_laundering():
    leaky = nans(asker())
    assert (leaky.value_leaks, leaky.key_leaks, leaky.laundered) == (True, False, ())
    washed = nans(asker(output=lambda o, *_: torch.nan_to_num(o)))
    assert washed.value_leaks is False
    assert washed.laundered == ("query", "key", "value")


@pytest.mark.parametrize(
    ("fault", "policy"),
    [
        ({}, "zeros"),
        ({"probabilities": lambda s: s.softmax(-1)}, "nan"),
        ({"hidden": -1e9}, "uniform"),
    ],
)
def test_empty_rows(fault, policy):
    found = empty_rows(asker(**fault))
    assert dict(found.by)["bool mask"] == policy
