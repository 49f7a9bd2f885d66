"""Corners of the error bound where a bias is involved: each one rejected a correct kernel."""

import numpy as np
import pytest
import torch

from equivalence.backends import torch_repeat_kv
from equivalence.bounds import allowance
from equivalence.calling import LocalTarget
from equivalence.case import AttentionCase
from equivalence.compare import compare
from equivalence.inputs import attention_inputs
from equivalence.masks import Mask
from equivalence.profiles import PROFILES, profile_for
from equivalence.reference import attention


def judge(inputs, profile=None):
    profile = profile or profile_for(inputs.dtype, "eager")
    exact = attention(inputs)
    outcome = LocalTarget.of(torch_repeat_kv.attention, name="eager").call(inputs)
    return compare(
        outcome.output, exact.output, allowance(inputs, exact, profile), dtype=inputs.dtype
    )


def test_a_mask_and_alibi_that_cancel_leave_the_rounding_of_both():
    rng = np.random.default_rng(0)
    case = AttentionCase(kv_len=64, head_dim=2, values="normal", magnitude=0.1, alibi=True)
    inputs = attention_inputs(case)
    distance = np.arange(63, -1, -1.0)
    # Both biases are large and exact in float32; their exact sum is about 1.
    slopes = np.array([1000.0])
    mask = np.float32(1000.0 * distance + rng.normal(size=64)).astype(np.float64)[None, None, None]
    inputs = inputs.but(mask=mask, alibi_slopes=slopes)
    assert np.abs(inputs.bias).max() < 4
    assert judge(inputs).passes
    exact = attention(inputs)
    summed = inputs.but(mask=inputs.bias, alibi_slopes=None)
    outcome = LocalTarget.of(torch_repeat_kv.attention, name="eager").call(inputs)
    without = allowance(summed, exact, PROFILES["f32"])
    assert not compare(outcome.output, exact.output, without, dtype="float32").passes


def test_a_score_below_the_lowest_half_is_outside_the_domain_where_nothing_outweighs_it():
    case = AttentionCase(
        head_dim=4, dtype="float16", values="normal", mask=Mask(form="float", hidden="finfo.min")
    )
    inputs = attention_inputs(case)
    lowest = np.full((1, 1, 1, 1), -65504.0)
    against = inputs.but(key=-32.0 * inputs.query, mask=lowest)
    assert attention(against).dots.max() < -32
    stored = (
        torch.tensor(against.query @ against.key.swapaxes(-1, -2)).half()
        + torch.tensor(lowest).half()
    )
    assert stored.isinf().all()
    assert judge(against).judged == 0
    assert judge(inputs.but(key=0.0 * inputs.key, mask=lowest)).judged == 4


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_a_sink_without_any_key_gives_zeros(dtype):
    comparison = judge(
        attention_inputs(AttentionCase(kv_len=0, head_dim=3, sinks=True, dtype=dtype))
    )
    assert comparison.passes
    assert comparison.judged == 3


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_a_mask_of_the_lowest_number_hides_no_error_on_the_visible_keys(dtype):
    """Its rounding error is enormous, and so far below the visible keys that it cannot matter."""
    case = AttentionCase(
        q_len=4, kv_len=4, head_dim=64, dtype=dtype, values="normal",
        mask=Mask(pattern="causal_lower_right", form="float", hidden="finfo.min"),
    )  # fmt: skip
    inputs = attention_inputs(case)
    hidden_by_infinity = inputs.but(mask=np.where(inputs.mask < -1, -np.inf, inputs.mask))
    comparison = judge(inputs)
    assert comparison.passes
    assert not comparison.vacuous
    assert comparison.judged == 4 * 64
    profile = profile_for(dtype, "eager")
    loose, tight = (
        allowance(x, attention(x), profile).allowed for x in (inputs, hidden_by_infinity)
    )
    assert (loose <= 2 * tight).all()  # hidden keys still count as terms of the sums


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_where_every_key_is_at_the_lowest_number_any_of_them_may_win(dtype):
    case = AttentionCase(
        kv_len=4, head_dim=8, dtype=dtype, values="normal", magnitude=3.0,
        mask=Mask(form="float", hidden="finfo.min", empty_rows=1),
    )  # fmt: skip
    comparison = judge(attention_inputs(case))
    assert comparison.passes
    assert comparison.vacuous
