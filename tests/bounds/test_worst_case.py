"""Every rounding at its worst comes up to the bound and never past it, in each profile."""

import numpy as np
import pytest

from equivalence.bounds import allowance
from equivalence.case import AttentionCase
from equivalence.inputs import attention_inputs
from equivalence.masks import Mask
from equivalence.profiles import PROFILES
from equivalence.reference import attention
from tests.bounds.adversary import worst_used

SIXTEEN = ("float32", "float16", "bfloat16")
DTYPES_OF = {"single": ("float64",), "bf16_inside": ("float32",)}
PAIRS = [
    (name, dtype)
    for name in PROFILES
    if not PROFILES[name].is_float64  # its unit roundoff is that of the arithmetic of this test
    for dtype in DTYPES_OF.get(name, SIXTEEN)
]
CASES = 24


def small_case(seed, dtype):
    rng = np.random.default_rng(seed)
    masks = (
        None,
        Mask(form="float", bias=3.0, seed=seed),
        Mask(form="float", bias=30.0, seed=seed),
        Mask(pattern="causal_lower_right"),
    )
    values = ("normal", "offset", "outliers", "one_hot", "cancellation")
    return AttentionCase(
        q_len=2,
        kv_len=int(rng.integers(1, 7)),
        head_dim=int(rng.integers(1, 5)),
        value_head_dim=2,
        dtype=dtype,
        values=values[rng.integers(5)],
        magnitude=(0.1, 1.0, 3.0, 10.0, 30.0)[rng.integers(5)],
        softcap=(None, None, 2.0, 20.0)[rng.integers(4)],
        sinks=bool(rng.integers(4) == 0),
        mask=masks[rng.integers(4)],
        seed=seed,
    )


@pytest.mark.parametrize(("name", "dtype"), PAIRS)
def test_the_bound_is_reached_and_kept(name, dtype):
    used = []
    for seed in range(CASES):
        inputs = attention_inputs(small_case(seed, dtype))
        exact = attention(inputs)
        allowed = allowance(inputs, exact, PROFILES[name]).allowed
        used.append(worst_used(inputs, exact, PROFILES[name], allowed))
        assert used[-1] <= 1, (seed, used[-1])
    # gamma_n overestimates (1 + u)^n, which shows where n u is no longer small.
    # A log-sum-exp of a part is taken to be as far from that of the row as any may be.
    loose = PROFILES[name].accumulate is None or (PROFILES[name].merges and dtype == "float32")
    assert np.median(used) > (0.8 if loose else 0.99)


def test_a_deep_key_with_an_uncertain_score_may_carry_the_sum():
    """sum p |v| of the exact p is too small where the largest |v| has the largest D."""
    inputs = attention_inputs(AttentionCase(kv_len=2, head_dim=2, dtype="bfloat16"))
    # Products of 64 that cancel to -4, beside a key that is exactly zero.
    inputs = inputs.but(
        query=np.array([[[[8.0, 8.0]]]]),
        key=np.array([[[[0.0, 0.0], [8.0, -8.5]]]]),
        value=np.array([[[[0.0, 0.0], [64.0, 64.0]]]]),
        scale=1.0,
    )
    exact = attention(inputs)
    assert exact.dots.ravel().tolist() == [0.0, -4.0]
    allowed = allowance(inputs, exact, PROFILES["math"]).allowed
    assert 0.9 < worst_used(inputs, exact, PROFILES["math"], allowed) <= 1
