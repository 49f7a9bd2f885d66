"""A bound that reaches every value tests nothing: that is said, and never counted as held."""

import numpy as np
import pytest

from equivalence.bounds import Allowance, allowance
from equivalence.case import AttentionCase
from equivalence.compare import compare
from equivalence.inputs import attention_inputs
from equivalence.masks import Mask
from equivalence.profiles import PROFILES
from equivalence.reference import attention


def vacuous(case, profile):
    inputs = attention_inputs(case)
    exact = attention(inputs)
    limits = allowance(inputs, exact, PROFILES[profile])
    facts = compare(exact.output, exact.output, limits, dtype=case.dtype, rows=exact.seen > 0)
    assert facts.passes
    return facts.vacuous


def share(profile, **fields):
    fields = {"q_len": 2, "kv_len": 32, "values": "normal", **fields}
    cases = [AttentionCase(seed=seed, **fields) for seed in range(20)]
    return sum(vacuous(case, profile) for case in cases) / len(cases)


def test_full_in_bfloat16_at_head_dim_64_is_mostly_vacuous():
    assert share("full", head_dim=64, dtype="bfloat16") > 0.5


@pytest.mark.parametrize("profile", ["f32", "flash", "eager", "math"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_other_profiles_are_not(profile, dtype):
    assert share(profile, head_dim=64, dtype=dtype) == 0


def test_full_in_float16_is_not():
    assert share("full", head_dim=64, dtype="float16") == 0


def test_huge_stored_scores_of_equal_keys_are():
    fields = {"head_dim": 8, "dtype": "bfloat16", "values": "equal_keys", "magnitude": 300.0}
    assert share("eager", **fields) > 0.5
    assert share("flash", **fields) == 0


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_where_all_values_are_equal_no_other_value_was_possible(dtype):
    """So no element is blind: what the kernel adds of its own would show."""
    assert not vacuous(AttentionCase(values="zero", kv_len=3, dtype=dtype), "f32")
    inputs = attention_inputs(AttentionCase(values="zero", kv_len=3, dtype=dtype))
    exact = attention(inputs)
    assert not allowance(inputs, exact, PROFILES["f32"]).furthest.any()


def test_the_furthest_value_may_be_hidden_or_in_another_head():
    case = AttentionCase(
        num_kv_heads=2, kv_len=3, values="steps", dtype="float32",
        mask=Mask(pattern="padding", size=1, axes=""),
    )  # fmt: skip
    inputs = attention_inputs(case)
    exact = attention(inputs)
    furthest = allowance(inputs, exact, PROFILES["f32"]).furthest
    # Head 0 sees only the value 1, of 1 to 6; head 1 only the value 4.
    assert furthest.ravel().tolist() == [5.0, 3.0]


def limits(allowed, furthest):
    shape = np.shape(allowed)
    return Allowance(
        allowed=np.array(allowed), furthest=np.array(furthest), natural=np.ones(shape),
        in_domain=np.ones(shape[:3], bool),
    )  # fmt: skip


def test_more_than_half_of_the_possible_elements_must_be_blind():
    exact = np.zeros((1, 1, 1, 4))

    def blind(reached, possible=4):
        furthest = [[[[1.0] * possible + [0.0] * (4 - possible)]]]
        allowed = [[[[1.0] * reached + [0.5] * (4 - reached)]]]
        return compare(exact, exact, limits(allowed, furthest), dtype="float32").vacuous

    assert [blind(n) for n in range(5)] == [False, False, False, True, True]
    # Elements where no other value was possible count neither way.
    assert [blind(n, possible=2) for n in range(3)] == [False, False, True]


def test_nothing_judged_is_vacuous():
    exact = np.zeros((1, 1, 2, 1))
    facts = compare(
        exact, exact, limits(exact + 1, exact + 2), dtype="float32", rows=np.zeros((1, 1, 2), bool)
    )
    assert facts.vacuous
    assert facts.judged == 0
    empty = np.zeros((1, 1, 0, 1))
    assert compare(empty, empty, limits(empty, empty), dtype="float32").vacuous


def test_rows_outside_the_domain_are_reported_and_not_judged():
    shape = (1, 1, 2, 1)
    allowed = Allowance(
        allowed=np.full(shape, 0.1), furthest=np.ones(shape), natural=np.ones(shape),
        in_domain=np.array([[[True, False]]]),
    )  # fmt: skip
    actual = np.array([[[[0.0], [np.nan]]]])
    facts = compare(actual, np.zeros(shape), allowed, dtype="float32")
    assert facts.passes
    assert (facts.judged, facts.unjudged_nonfinite) == (1, 1)
    assert not facts.nonfinite
