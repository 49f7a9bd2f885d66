"""Small mistakes are seen: exact attention with one thing wrong, rounded once, is rejected."""

import numpy as np
import pytest

from equivalence.bounds import allowance
from equivalence.case import AttentionCase
from equivalence.compare import compare
from equivalence.dtypes import rounded
from equivalence.inputs import attention_inputs
from equivalence.profiles import PROFILES
from equivalence.reference import attention

SEEDS = range(12)


def judged(inputs, wrong, profile):
    """The comparison of ``wrong``, stored in the dtype, with exact attention."""
    exact = attention(inputs)
    facts = compare(
        rounded(wrong, inputs.dtype), exact.output, allowance(inputs, exact, PROFILES[profile]),
        dtype=inputs.dtype,
    )  # fmt: skip
    assert not facts.vacuous
    return facts


def deep_key(dtype, depth):
    """One key stands ``depth`` below another and has a value that makes up for it."""
    largest = 3e4 if dtype == "float16" else 1e30
    value = min(np.exp(depth), largest)
    inputs = attention_inputs(AttentionCase(kv_len=2, dtype=dtype))
    return inputs.but(
        query=np.array([[[[1.0]]]]),
        key=np.array([[[[float(depth)], [0.0]]]]),
        value=rounded(np.array([[[[0.0], [value]]]]), dtype),
    )


def balanced(dtype, depth):
    """Two keys whose values cancel, so that rounding the output hides nothing (a null readout)."""
    inputs = deep_key(dtype, depth)
    exact = attention(inputs)
    first, second = exact.probabilities[0, 0, 0]
    high = rounded(np.array(second / first), dtype)
    return inputs.but(value=np.array([[[[-float(high)], [1.0]]]]))


@pytest.mark.parametrize(
    ("dtype", "profile", "relative", "depth"),
    [
        ("float32", "f32", 1e-5, 40),
        ("float16", "f32", 1e-3, 8),
        ("bfloat16", "f32", 1e-3, 30),
        ("float16", "flash", 1e-3, 10),
        ("bfloat16", "flash", 1e-3, 40),
        # Scores stored in the dtype are off by (1 + u)^3 themselves: 1.5e-3 and 1.2e-2.
        ("float16", "eager", 4e-3, 10),
        ("bfloat16", "eager", 4e-2, 10),
    ],
)
@pytest.mark.parametrize("side", [1, -1])
def test_a_wrong_scale(dtype, profile, relative, depth, side):
    inputs = deep_key(dtype, depth)
    right = judged(inputs, attention(inputs).output, profile)
    assert right.passes
    wrong = attention(inputs.but(scale=1 + side * relative)).output
    assert not judged(inputs, wrong, profile).passes


@pytest.mark.parametrize(("dtype", "relative"), [("float32", 1e-5), ("bfloat16", 1e-3)])
def test_a_wrong_scale_where_values_cancel(dtype, relative):
    inputs = balanced(dtype, 4.0)
    assert judged(inputs, attention(inputs).output, "f32").passes
    wrong = attention(inputs.but(scale=1 + relative)).output
    assert not judged(inputs, wrong, "f32").passes


EVERY = [
    ("float64", "f64"), ("float32", "f32"), ("float16", "flash"), ("bfloat16", "flash"),
    ("float16", "eager"), ("bfloat16", "eager"), ("float16", "math"), ("bfloat16", "math"),
]  # fmt: skip
on_every = pytest.mark.parametrize(("dtype", "profile"), EVERY)


def seeded(dtype, **changes):
    fields = {"q_len": 2, "kv_len": 24, "head_dim": 16, "values": "normal", "magnitude": 0.3}
    for seed in SEEDS:
        yield attention_inputs(AttentionCase(dtype=dtype, seed=seed, **{**fields, **changes}))


@on_every
def test_one_dropped_key(dtype, profile):
    for inputs in seeded(dtype):
        mask = np.ones((1, 1, 1, 24), bool)
        mask[..., 7] = False
        wrong = attention(inputs.but(mask=mask)).output
        assert not judged(inputs, wrong, profile).passes


@on_every
def test_one_key_counted_twice(dtype, profile):
    for inputs in seeded(dtype):
        twice = inputs.but(
            key=np.concatenate([inputs.key, inputs.key[:, :, 3:4]], axis=2),
            value=np.concatenate([inputs.value, inputs.value[:, :, 3:4]], axis=2),
        )
        assert not judged(inputs, attention(twice).output, profile).passes


@on_every
def test_one_probability_off_by_half(dtype, profile):
    for inputs in seeded(dtype):
        exact = attention(inputs)
        off = exact.probabilities.copy()
        off[..., 5] *= 1.5
        wrong = np.matmul(off, inputs.value)
        assert not judged(inputs, wrong, profile).passes


@pytest.mark.parametrize(
    ("dtype", "profile"),
    [("float64", "f64"), ("float32", "f32"), ("float16", "flash"), ("bfloat16", "flash"),
     ("float16", "eager"), ("float16", "math")],
)  # fmt: skip
@pytest.mark.parametrize("off", [0.99, 1.01])
def test_a_softcap_off_by_one_percent(dtype, profile, off):
    """Scores of +100 and -100 become the softcap and its opposite, 10 apart."""
    deep = deep_key(dtype, 10.0)
    inputs = deep.but(key=np.array([[[[100.0], [-100.0]]]]), softcap=5.0)
    assert judged(inputs, attention(inputs).output, profile).passes
    wrong = attention(inputs.but(softcap=5.0 * off)).output
    assert not judged(inputs, wrong, profile).passes


@on_every
def test_no_softcap_at_all(dtype, profile):
    for inputs in seeded(dtype, magnitude=3.0, softcap=1.0):
        wrong = attention(inputs.but(softcap=None)).output
        assert not judged(inputs, wrong, profile).passes


@on_every
def test_a_sink_left_out(dtype, profile):
    for inputs in seeded(dtype, sinks=True, kv_len=4):
        wrong = attention(inputs.but(sinks=None)).output
        assert not judged(inputs, wrong, profile).passes


@on_every
def test_the_wrong_head(dtype, profile):
    for inputs in seeded(dtype, num_kv_heads=2, group_size=2):
        wrong = attention(inputs.but(kv_head_of=np.array([0, 1, 0, 1]))).output
        facts = judged(inputs, wrong, profile)
        assert not facts.passes
        assert set(np.nonzero(facts.wrong)[1]) == {1, 2}


@on_every
def test_a_window_off_by_one(dtype, profile):
    for inputs in seeded(dtype, window=4):
        for width in (3, 5):
            wrong = attention(inputs.but(band=(width - 1, 0))).output
            assert not judged(inputs, wrong, profile).passes
