"""The rules of the benchmark say what they are said to say, and count what they should."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.comparison_rules import RULES, Part
from benchmarks.detection import row_of
from benchmarks.detection_floor import SMALLEST, last_seen, size_at
from benchmarks.detection_tables import RULES as NAMED
from benchmarks.planted_errors import ERRORS, PROFILES, planted
from benchmarks.rule_counts import Suites, eager_target, rejected_by, rejections
from benchmarks.usual_suite import USUAL
from equivalence.case import AttentionCase as Case
from equivalence.inputs import attention_inputs
from equivalence.reference import attention
from tests.broken.attention_base import broken
from tests.broken.attention_heads import HEADS
from tests.broken.entry import Broken
from tests.broken.judging import Judged, judge

BY_NAME = {rule.name: rule for rule in RULES}
NUMBERS = np.linspace(-2.0, 2.0, 101)


def part(actual, *, dtype="float32", eager=None, sound=True):
    eager = NUMBERS if eager is None else eager
    return Part(actual=np.asarray(actual), expected=NUMBERS, eager=eager, dtype=dtype, sound=sound)


def small_suites(monkeypatch, *cases):
    """Only ``cases`` are usual; nothing is drawn."""
    monkeypatch.setattr("benchmarks.rule_counts.USUAL", cases)
    return Suites(seed=0, eager=eager_target())


def test_every_rule_accepts_equal_tensors_and_is_named_on_the_page():
    assert rejected_by([part(NUMBERS)]) == set()
    assert [rule.name for rule in RULES] == list(NAMED)


@pytest.mark.parametrize(
    ("name", "dtype", "accepted", "rejected"),
    [
        ("assert_close", "float32", 9e-6, 2e-5),
        ("assert_close", "bfloat16", 0.0, 5e-2),
        ("1e-2", "float32", 9e-3, 1.1e-2),
        ("1e-3", "float32", 9e-4, 1.1e-3),
        ("98%", "float32", 9e-4, 4e-3),
        ("98%", "float16", 9e-3, 4e-2),
    ],
)
def test_the_width_of_a_tolerance(name, dtype, accepted, rejected):
    assert BY_NAME[name].accepts(part(NUMBERS + accepted, dtype=dtype))
    assert not BY_NAME[name].accepts(part(NUMBERS + rejected, dtype=dtype))


def test_twice_the_error_of_eager():
    eager = NUMBERS.copy()
    eager[3] += 1e-3
    for factor, accepted in ((1.9, True), (2.1, False)):
        actual = NUMBERS.copy()
        actual[70] += factor * 1e-3
        assert BY_NAME["twice"].accepts(part(actual, eager=eager)) is accepted


def test_some_elements_may_be_far_off():
    for many, accepted in ((2, True), (3, False)):
        actual = NUMBERS.copy()
        actual[:many] += 1.0
        assert BY_NAME["98%"].accepts(part(actual)) is accepted
        assert not BY_NAME["1e-2"].accepts(part(actual))


def test_an_angle_forgives_a_factor_and_a_correlation_a_shift_too():
    names = rejected_by([part(1.5 * NUMBERS)])
    assert "1e-2" in names
    assert not names & {"cosine", "correlation"}
    names = rejected_by([part(NUMBERS + 1.0)])
    assert "cosine" in names
    assert "correlation" not in names


def test_nan_is_accepted_by_no_rule():
    actual = NUMBERS.copy()
    actual[5] = np.nan
    every = {rule.name for rule in RULES} - {"98%", "bound"}  # one of 101, and told by `sound`
    assert rejected_by([part(actual)]) == every
    assert "bound" in rejected_by([part(actual, sound=False)])


def test_a_wrong_head_map_is_seen_where_heads_are_grouped(monkeypatch):
    kernel = next(entry for entry in HEADS if entry.name == "heads_tiled").kernel
    target = planted("scale", 0.0, "f32")
    wrong = type(target).of(kernel, name="tiled", facts={"masked_rows": "zeros"})
    plain = Case(values="normal", num_kv_heads=2, kv_len=8, head_dim=8)
    suites = small_suites(monkeypatch, plain, plain.but(group_size=2))
    found = rejections(wrong, "usual", "float32", suites, right=target)
    assert found.judged == 2
    assert found.told == found.first == {rule.name: 2 for rule in RULES}
    assert rejections(target, "usual", "float32", suites).first == {}


def test_a_small_error_of_scale_is_missed_in_float16(monkeypatch):
    case = next(case for case in USUAL if case.softcap is None and not case.sinks)
    suites = small_suites(monkeypatch, case.but(q_len=16))
    seen = {}
    for dtype in ("float32", "float16"):
        target = planted("scale", 5e-4, "f32")
        seen[dtype] = set(rejections(target, "usual", dtype, suites).first)
    assert {"assert_close", "twice", "bound"} <= seen["float32"]
    assert not seen["float16"] & {"twice", "1e-2", "1e-3", "98%", "cosine", "correlation"}


def test_a_rejection_of_the_right_kernel_too_says_nothing(monkeypatch):
    case = Case(values="long_sum", kv_len=64, head_dim=8, magnitude=30.0)
    suites = small_suites(monkeypatch, case)
    right = planted("scale", 0.0, "eager")
    found = rejections(right, "usual", "bfloat16", suites, right=right)
    assert "1e-3" in found.first
    assert found.told == {}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("error", ERRORS)
def test_what_is_planted_is_nothing_at_size_0_and_shows_at_size_1(error, dtype):
    case = Case(
        values="normal", q_len=3, kv_len=6, head_dim=4, value_head_dim=2, softcap=2.0, dtype=dtype
    )
    inputs = attention_inputs(case)
    exact = attention(inputs).output
    for profile in PROFILES[dtype]:
        errors = [
            np.abs(planted(error, size, profile).call(inputs).output - exact).max()
            for size in (0.0, 1.0)
        ]
        assert errors[0] < (1e-6 if dtype == "float32" else 3e-2)
        assert errors[1] > 10 * errors[0]


def test_a_lost_key_weighs_no_more_than_is_said():
    case = Case(values="normal", kv_len=6, head_dim=4)
    inputs = attention_inputs(case)
    weights = np.sort(attention(inputs).probabilities.ravel())
    exact = planted("one dropped key", 0.0, "f32").call(inputs).output
    lighter = planted("one dropped key", weights[0] * 0.99, "f32").call(inputs).output
    lightest = planted("one dropped key", weights[0] * 1.01, "f32").call(inputs).output
    assert (lighter == exact).all()
    assert (lightest != exact).any()


def test_the_last_size_that_is_seen():
    assert size_at(12) == pytest.approx(0.1)
    assert last_seen(lambda step: step <= 37) == 37
    assert last_seen(lambda step: step <= 0) == 0
    assert last_seen(lambda step: True) == SMALLEST
    assert last_seen(lambda step: False) is None


def test_a_kernel_that_is_not_caught_is_counted_as_not_caught():
    entry = Broken(name="right", kernel=broken(), smallest=Case(kv_len=2), diagnoses=("scale",))
    judged = judge(entry, "float32")
    row = row_of(judged, "own")
    assert isinstance(judged, Judged)
    assert row["caught"] is row["named"] is row["minimal"] is False
    assert row["first"] is None
    assert row["seconds"] == row["whole"] > 0
