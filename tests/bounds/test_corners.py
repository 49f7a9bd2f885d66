"""Where the bound has a cap, a floor or a rule of its own; each one rejected correct code once."""

import numpy as np
import pytest

from equivalence.bounds import Allowance, allowance, score_error
from equivalence.case import AttentionCase
from equivalence.compare import compare
from equivalence.dtypes import FORMATS, format_of, rounded, stored
from equivalence.inputs import attention_inputs
from equivalence.masks import Mask
from equivalence.profiles import PROFILES, profile_for
from equivalence.reference import attention


def bound(inputs, profile):
    return allowance(inputs, attention(inputs), PROFILES[profile]).allowed


def two_keys(dtype, first, second, **fields):
    """Scores ``first`` and ``second``, values 1 and -1."""
    inputs = attention_inputs(AttentionCase(kv_len=2, dtype=dtype))
    return inputs.but(
        query=np.array([[[[1.0]]]]),
        key=np.array([[[[first], [second]]]]),
        value=np.array([[[[1.0], [-1.0]]]]),
        **fields,
    )


def test_an_error_beyond_fifty_allows_any_mixture_and_no_more():
    inputs = two_keys("bfloat16", 1e4, 1e4)
    exact = attention(inputs)
    assert score_error(inputs, exact, PROFILES["eager"]).max() > 50
    allowed = bound(inputs, "eager").item()
    # Any mixture of 1 and -1 is within 1 of 0; then the roundings of values of size 1.
    assert 1 < allowed < 1 + 4 * 2.0**-8
    assert np.isfinite(bound(inputs, "full")).all()


def test_the_hull_caps_what_scores_may_do():
    inputs = two_keys("bfloat16", 100.0, 100.0)
    exact = attention(inputs)
    error = score_error(inputs, exact, PROFILES["eager"])
    assert 1 < error.max() < 50
    assert 1 < bound(inputs, "eager").item() < 1 + 4 * 2.0**-8


@pytest.mark.parametrize("dtype", FORMATS)
def test_a_row_without_keys_is_allowed_no_error_to_speak_of(dtype):
    inputs = attention_inputs(AttentionCase(kv_len=0, head_dim=3, dtype=dtype))
    exact = attention(inputs)
    assert not exact.output.any()
    allowed = allowance(inputs, exact, profile_for(dtype, "eager")).allowed
    assert (allowed <= 1.01 * format_of(dtype).half_subnormal).all()


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("profile", ["eager", "full"])
def test_zeros_everywhere_leave_no_nan(dtype, profile):
    """gamma_n is enormous where n u >= 1, and times a sum of zeros it must stay zero."""
    inputs = attention_inputs(AttentionCase(kv_len=300, head_dim=600, values="zero", dtype=dtype))
    allowed = bound(inputs, profile)
    assert np.isfinite(allowed).all()
    assert (profile, dtype) == ("full", "bfloat16") or (allowed < 1e-3).all()


def test_weights_below_the_smallest_normal_number_may_vanish():
    """float32 inside: exp(-95) is subnormal, and flushing it loses all of a one-hot output."""
    inputs = two_keys("float32", 0.0, -95.0)
    inputs = inputs.but(value=np.array([[[[0.0], [1.0]]]]))
    exact = attention(inputs).output.item()
    assert 0 < exact < 2.0**-126
    assert bound(inputs, "f32").item() > exact
    # The same inside float64 targets that compute in float32, whose storage reaches further down.
    wide = inputs.but(dtype="float64")
    assert bound(wide, "single").item() > exact
    assert bound(wide, "f64").item() < 1e-12 * exact


def test_half_precision_probabilities_may_underflow():
    inputs = two_keys("float16", 0.0, -18.0).but(value=np.array([[[[0.0], [1.0]]]]))
    exact = attention(inputs).output.item()
    assert 0 < exact < 2.0**-25
    assert bound(inputs, "flash").item() > exact
    assert bound(inputs.but(value=1e4 * inputs.value), "f32").item() < 1e4 * exact


def test_a_softcap_of_tiny_scores_may_underflow_in_half_precision():
    """x / c, its tanh and the product with c are stored, and each loses up to eta."""
    inputs = two_keys("float16", 1e-6, 2e-6, softcap=50.0)
    step = 2.0**-25 * 50
    assert score_error(inputs, attention(inputs), PROFILES["eager"]).min() > 2 * step


def test_a_narrower_inside_rounds_the_bias_and_the_sum():
    """Both bias roundings of 16.06 go down, both of the other key go up."""
    inputs = two_keys("float32", 0.0604, 0.0624)
    inputs = inputs.but(
        mask=np.array([[[[16.0624, 16.0626]]]]), key=np.array([[[[0.0604], [0.0624]]]])
    )
    bf16 = [rounded(np.array(x), "bfloat16") for x in (inputs.key, inputs.mask, inputs.value)]
    scores = rounded(bf16[0].ravel() + bf16[1].ravel(), "bfloat16")
    assert scores.tolist() == [16.0, 16.25]
    weights = np.exp(scores - scores.max())
    found = rounded(weights @ bf16[2][0, 0] / weights.sum(), "bfloat16")
    exact = attention(inputs)
    facts = compare(
        found[None, None, None], exact.output, allowance(inputs, exact, PROFILES["bf16_inside"]),
        dtype="float32",
    )  # fmt: skip
    assert 0.5 < facts.used <= 1


def facts_of(actual, expected, allowed, dtype):
    shape = (1, 1, 1, 1)
    full = [np.full(shape, x, np.float64) for x in (actual, expected, allowed)]
    limits = Allowance(
        allowed=full[2], furthest=np.full(shape, np.inf), natural=np.ones(shape),
        in_domain=np.ones(shape[:3], bool),
    )  # fmt: skip
    return compare(full[0], full[1], limits, dtype=dtype)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_infinity_is_accepted_exactly_where_the_bound_rounds_to_it(dtype):
    largest, threshold = format_of(dtype).max_finite, format_of(dtype).overflow
    # ml_dtypes reaches bfloat16 by way of float32, so "just below" is meant in float32.
    below = threshold * (1 - 2.0 ** (-53 if dtype == "float32" else -24))
    assert np.isinf(stored(np.array(threshold), dtype).astype(np.float64))
    assert np.isfinite(stored(np.array(below), dtype).astype(np.float64))
    assert facts_of(np.inf, largest, threshold - largest, dtype).passes
    assert not facts_of(np.inf, largest, below - largest, dtype).passes
    assert facts_of(-np.inf, -largest, threshold - largest, dtype).passes
    assert not facts_of(np.inf, -largest, threshold, dtype).passes
    assert not facts_of(np.nan, largest, largest, dtype).passes
    assert facts_of(np.inf, largest, below - largest, dtype).nonfinite


def test_infinity_in_float64():
    largest = format_of("float64").max_finite
    assert facts_of(np.inf, largest, largest / 8, "float64").passes
    assert not facts_of(np.inf, largest / 8, largest / 8, "float64").passes


def test_no_error_uses_nothing_of_no_allowance():
    facts = facts_of(2.0, 2.0, 0.0, "float32")
    assert facts.passes
    assert facts.used == 0
    assert not facts_of(2.0, 2.0000001, 0.0, "float32").passes


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_a_mask_of_the_lowest_number_does_not_overflow_the_bound(dtype):
    mask = Mask(pattern="padding", form="float", hidden="finfo.min", size=2, bias=1.0)
    case = AttentionCase(q_len=2, kv_len=5, values="normal", mask=mask, dtype=dtype)
    allowed = bound(attention_inputs(case), profile_for(dtype, "eager").name)
    assert (allowed < 0.2).all()


@pytest.mark.parametrize(
    ("name", "inside"), [("f32", True), ("flash", True), ("eager", False), ("full", False)]
)
def test_scores_that_the_dtype_cannot_store_are_outside_the_domain(name, inside):
    inputs = two_keys("float16", 0.0, 0.0).but(query=np.array([[[[256.0]]]]))
    inputs = inputs.but(key=np.array([[[[256.0], [0.0]]]]))
    exact = attention(inputs)
    assert allowance(inputs, exact, PROFILES[name]).in_domain.item() is inside


def test_sums_of_values_that_the_accumulator_cannot_hold_are_outside_the_domain():
    inputs = two_keys("float32", 0.0, 0.0).but(value=np.full((1, 1, 2, 1), 2e38))
    exact = attention(inputs)
    assert not allowance(inputs, exact, PROFILES["f32"]).in_domain.item()
    assert allowance(inputs, exact, PROFILES["f64"]).in_domain.item()
