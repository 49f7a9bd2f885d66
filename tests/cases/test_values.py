"""The numbers of a case are what its words say, and the same in every process."""

import hashlib
import subprocess
import sys

import numpy as np
import pytest

from equivalence.case import MEMORIES, VALUES, AttentionCase
from equivalence.dtypes import DTYPES, numpy_dtype, stored
from equivalence.inputs import attention_inputs
from equivalence.masks import Mask
from equivalence.memory import buffer_of, lay_out

SHAPE = {"batch_size": 2, "num_kv_heads": 3, "group_size": 2, "q_len": 16, "kv_len": 24}


def inputs_of(**fields):
    return attention_inputs(AttentionCase(**{**SHAPE, "head_dim": 16, **fields}))


DIGEST = """
import hashlib, sys
from equivalence.inputs import attention_inputs
from equivalence.replay import parse_case
for text in sys.stdin.read().splitlines():
    i = attention_inputs(parse_case(text))
    parts = [i.query, i.key, i.value, i.mask, i.sinks, i.alibi_slopes, i.kv_lengths]
    print(hashlib.sha256(b"".join(p.tobytes() for p in parts if p is not None)).hexdigest())
"""


def test_the_same_case_is_the_same_numbers_in_a_fresh_process():
    mask = Mask(pattern="random", form="float", axes="bhq", size=50, bias=1.0)
    cases = [
        AttentionCase(**SHAPE, head_dim=5, values=values, dtype=dtype, seed=7, mask=mask,
                      sinks=True, alibi=True, kv_lengths=(24, 3), plants=(("key", 1, 2, 8.0),))
        for values, dtype in zip(VALUES, DTYPES * 3, strict=False)
    ]  # fmt: skip
    here = []
    for case in cases:
        i = attention_inputs(case)
        parts = [i.query, i.key, i.value, i.mask, i.sinks, i.alibi_slopes, i.kv_lengths]
        here.append(hashlib.sha256(b"".join(p.tobytes() for p in parts)).hexdigest())
    lines = "\n".join(map(repr, cases))
    done = subprocess.run(
        [sys.executable, "-c", DIGEST], input=lines, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == here
    assert len(set(here)) == len(here)


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_number_can_be_stored(values, dtype):
    inputs = inputs_of(values=values, dtype=dtype, magnitude=30.0)
    for operand in (inputs.query, inputs.key, inputs.value):
        assert np.isfinite(operand).all()
        assert (stored(operand, dtype).astype(np.float64) == operand).all()


@pytest.mark.parametrize("values", sorted(set(VALUES) - {"zero", "ramp", "steps", "one_hot"}))
def test_values_have_both_signs_and_real_spread(values):
    value = inputs_of(values=values).value
    value = value - {"offset": 100.0, "long_sum": 2048.0}.get(values, 0.0)
    assert 0.2 < (value > 0).mean() < 0.8
    assert value.std() > 0.5
    assert len(np.unique(value)) > 0.9 * value.size


@pytest.mark.parametrize("magnitude", [0.1, 1.0, 10.0, 30.0])
def test_magnitude_is_the_size_of_queries(magnitude):
    inputs = inputs_of(values="normal", magnitude=magnitude)
    assert 0.9 < inputs.query.std() / magnitude < 1.1
    assert 0.9 < inputs.key.std() < 1.1
    assert (inputs.query == 0.0).sum() == 0


def test_what_the_eye_can_follow():
    assert not inputs_of(values="zero").value.any()
    ramp = inputs_of(values="ramp")
    assert not ramp.query.any()
    assert not ramp.key.any()
    assert (ramp.value == np.arange(1, 4)[None, :, None, None]).all()
    steps = inputs_of(values="steps").value[..., 0]
    assert steps.ravel().tolist() == [n % 251 + 1 for n in range(2 * 3 * 24)]


def test_shapes_of_the_seeded_distributions():
    hot = inputs_of(values="one_hot", value_head_dim=24).value
    assert (hot == np.arange(1, 4)[None, :, None, None] * np.eye(24)).all()
    keys = inputs_of(values="equal_keys").key
    assert (keys == keys[:, :, :1]).all()
    offset = inputs_of(values="offset").value
    assert 99 < offset.mean() < 101
    outliers = inputs_of(values="outliers", head_dim=64)
    assert np.abs(outliers.key).max() > 20
    assert np.abs(outliers.value).max() > 50
    assert np.median(np.abs(outliers.value)) < 1
    heavy = inputs_of(values="heavy_tailed", head_dim=64)
    assert 10 < np.abs(heavy.query).max() <= 200
    value = inputs_of(values="cancellation").value
    assert (np.sign(value[:, :, 1:]) == -np.sign(value[:, :, :-1])).all()
    assert np.abs(value.mean(axis=2)).max() < 1 < 60 < np.abs(value).min()


def test_peaky_queries_point_at_one_key():
    inputs = inputs_of(values="peaky", head_dim=32)
    key = inputs.key[:, inputs.kv_head_of]
    scores = np.sort(inputs.query @ key.swapaxes(-1, -2) / 32**0.5, axis=-1)
    assert np.median(scores[..., -1] - scores[..., -2]) > 5


def test_seeds_are_different_numbers():
    first, second = (inputs_of(values="normal", seed=seed) for seed in (0, 1))
    assert (first.query != second.query).all()
    assert (first.query[0] != first.query[1]).all()


def test_plants():
    plants = (("key", 1, 2, 8.0), ("value", 5, 30, float("nan")), ("query", 0, 0, 0.1))
    inputs = inputs_of(values="normal", plants=plants, dtype="float16")
    assert (inputs.key[:, 1, 2] == 8.0).all()
    assert np.isnan(inputs.value[:, 2, 6]).all()
    assert (inputs.query[:, 0, 0] == float(np.float16(0.1))).all()
    assert attention_inputs(AttentionCase(kv_len=0, plants=(("key", 0, 0, 1.0),))).key.size == 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("memory", MEMORIES)
def test_layouts_hold_the_same_numbers_and_have_their_strides(memory, dtype):
    array = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5).astype(numpy_dtype(dtype))
    if memory == "expanded":
        array[:] = array[:, :1]
    view = lay_out(array, memory)
    assert view.shape == array.shape
    assert (view == array).all()
    strides = tuple(stride // view.itemsize for stride in view.strides)
    assert (
        strides
        == {
            "contiguous": (60, 20, 5, 1),
            "bshd": (60, 5, 15, 1),
            "transposed": (60, 20, 1, 4),
            "sliced": (3 * 7 * 10, 7 * 10, 10, 1),
            "expanded": (20, 0, 5, 1),
        }[memory]
    )
    assert view.flags.writeable
    buffer = buffer_of(view).astype(np.float64)
    assert (memory == "sliced") == bool(np.isnan(buffer).any())
