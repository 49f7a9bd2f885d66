"""The bounds of the log-sum-exp and of convex combinations, from both sides."""

import numpy as np
import pytest

from equivalence.bounds import combination_error, lse_allowance
from equivalence.case import AttentionCase
from equivalence.inputs import attention_inputs
from equivalence.masks import Mask
from equivalence.profiles import PROFILES
from equivalence.reference import attention

SHAPE = {"q_len": 4, "kv_len": 30, "head_dim": 16, "values": "normal"}


def float32_lse(inputs):
    """log-sum-exp in float32, two blocks, in base 2 and back."""
    single = np.float32
    key = inputs.key[:, inputs.kv_head_of].astype(single)
    scores = inputs.query.astype(single) @ key.swapaxes(-1, -2) * single(inputs.scale_value)
    if inputs.bias is not None:
        scores = scores + inputs.bias.astype(single)
    scores = np.where(inputs.visible, scores, single(-np.inf)) * single(np.log2(np.e))
    top = scores.max(-1, keepdims=True)
    total = np.exp2(scores - top).sum(-1, keepdims=True, dtype=single)
    return ((top + np.log2(total)) * single(np.log(2)))[..., 0].astype(np.float64)


@pytest.mark.parametrize("magnitude", [0.1, 1.0, 10.0, 100.0])
@pytest.mark.parametrize("bias", [0.0, 30.0])
def test_a_correct_log_sum_exp_is_within(magnitude, bias):
    top = 0.0
    for seed in range(20):
        case = AttentionCase(
            **SHAPE, magnitude=magnitude, seed=seed, causal="lower_right",
            mask=Mask(form="float", bias=bias, seed=seed),
        )  # fmt: skip
        inputs = attention_inputs(case)
        exact = attention(inputs)
        error = np.abs(float32_lse(inputs) - exact.lse)
        top = max(top, (error / lse_allowance(inputs, exact, PROFILES["f32"])).max())
    assert 0.001 < top <= 1


@pytest.mark.parametrize(
    ("dtype", "profile", "most"),
    [("float64", "f64", 1e-12), ("float32", "f32", 5e-5), ("bfloat16", "flash", 5e-5),
     ("bfloat16", "eager", 0.1)],
)  # fmt: skip
def test_a_dropped_key_a_wrong_base_and_a_sink_show(dtype, profile, most):
    inputs = attention_inputs(AttentionCase(**SHAPE, dtype=dtype))
    exact = attention(inputs)
    allowed = lse_allowance(inputs, exact, PROFILES[profile])
    assert (allowed < most).all()
    assert (np.abs(exact.lse / np.log(2) - exact.lse) > allowed).all()
    with_sink = np.logaddexp(exact.lse, 0.5)
    assert profile == "eager" or (np.abs(with_sink - exact.lse) > allowed).all()
    mask = np.arange(30)[None, None, None] != 11
    dropped = attention(inputs.but(mask=mask)).lse
    assert profile == "eager" or (np.abs(dropped - exact.lse) > allowed).any()


def test_a_key_hidden_by_a_large_number_does_not_make_the_sum_untestable():
    """Its score is off by 0.2 and more, but it has no weight."""
    mask = Mask(pattern="causal_lower_right", form="float", hidden="finfo.min")
    inputs = attention_inputs(AttentionCase(**SHAPE, mask=mask))
    exact = attention(inputs)
    assert (lse_allowance(inputs, exact, PROFILES["f32"]) < 1e-4).all()


def test_a_sink_is_no_part_of_the_log_sum_exp():
    inputs = attention_inputs(AttentionCase(**SHAPE, sinks=True))
    without = attention_inputs(AttentionCase(**SHAPE))
    for profile in (PROFILES["f32"], PROFILES["eager"]):
        allowed = lse_allowance(inputs, attention(inputs), profile)
        expected = lse_allowance(without, attention(without), profile)
        np.testing.assert_allclose(allowed, expected, rtol=1e-6)


def test_an_empty_row_has_no_log_sum_exp():
    inputs = attention_inputs(AttentionCase(**SHAPE, mask=Mask(empty_rows=1)))
    allowed = lse_allowance(inputs, attention(inputs), PROFILES["f32"])
    assert np.isinf(allowed[:, :, 0]).all()
    assert np.isfinite(allowed[:, :, 1:]).all()


@pytest.mark.parametrize(("dtype", "profile"), [("float32", "f32"), ("bfloat16", "flash")])
def test_a_combination_may_leave_the_hull_by_its_roundings_only(dtype, profile):
    inputs = attention_inputs(AttentionCase(**SHAPE, dtype=dtype))
    exact = attention(inputs)
    allowed = combination_error(inputs, exact, PROFILES[profile])
    tallest = np.abs(inputs.value).max(axis=2)[:, :, None]
    unit = 2.0**-24 if dtype == "float32" else 2.0**-8
    assert (allowed >= unit * tallest).all()
    # Weights that sum to one within the roundings, and weights that do not.
    assert (2.5 * unit * tallest < allowed).all() == (dtype == "float32")
    assert (allowed < (250 if dtype == "float32" else 2.1) * unit * tallest).all()


def test_the_number_of_terms_can_be_that_of_a_whole_row():
    inputs = attention_inputs(AttentionCase(**SHAPE, causal="lower_right"))
    exact = attention(inputs)
    own = combination_error(inputs, exact, PROFILES["f32"])
    whole = combination_error(inputs, exact, PROFILES["f32"], seen=30)
    assert (whole >= own).all()
    assert (whole[:, :, -1] == own[:, :, -1]).all()
