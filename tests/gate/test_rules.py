"""Each way to get looser fails with one line; each way to get tighter is to be locked in."""

from __future__ import annotations

from typing import Any

import pytest

from equivalence.gate.baseline import baseline_of
from equivalence.gate.findings import Findings
from equivalence.gate.rules import compare
from equivalence.report.schema import CounterexampleJson, PairJson

from .conftest import found, law, target

FAILING = CounterexampleJson(
    case="AttentionCase()", replay="equivalence replay it 'AttentionCase()'", index=[0], got=1.0,
    expected=0.0, used=2.0,
)  # fmt: skip


def pair(held: bool | None) -> PairJson:
    """Two formulations."""
    return PairJson(
        first="a", second="b", held=held, compared=1, vacuous=0, equal=0, broken=0, used=0.1
    )


def lines(old: Findings, new: Findings) -> list[tuple[bool, str]]:
    """The changes, shortly."""
    return [(change.looser, change.text) for change in compare(baseline_of(old), new)]


BASE = found(target("it", law(), not_exercised={"sinks": "not among its options"}))


@pytest.mark.parametrize(
    ("new", "said"),
    [
        (target("it", law(held=False, counterexample=FAILING)),
         "it: causality float32: broke: equivalence replay it 'AttentionCase()'"),
        (target("it", law(held=None, examples=0, refused=9)),
         "it: causality float32: no longer judged (9 refused, 0 vacuous)"),
        (target("it", law("within-hull")), "it: lost law causality"),
        (target("it", law(dtype="float16")), "it: lost dtype float32"),
        (target("it", law(used=0.51)),
         "it: causality float32: uses 0.51 of its bound, was at most 0.5"),
        (target("it", law(used="Infinity")),
         "it: causality float32: uses inf of its bound, was at most 0.5"),
        (target("it", law(refused=1)), "it: causality float32: 1 cases refused, were 0"),
        (target("it", law(vacuous=2)), "it: causality float32: 2 cases vacuous, were 0"),
        (target("it", profile="eager"), "it: judged by profile eager, was flash"),
        (target("it", kind="mla"), "it: is of kind mla, was attention"),
        (target("it", not_exercised={"softcap": "no"}), "it: no longer exercised: softcap: no"),
        (target("it", refuses_grouped=True),
         "it: no longer exercised: grouped heads: every grouped case is refused"),
        (target("it", interrupted=True), "it: its run was interrupted"),
        (target("it", trouble="no tiny case worked"), "it: not run: no tiny case worked"),
    ],
)  # fmt: skip
def test_whatever_gets_looser_fails(new: Any, said: str) -> None:
    assert (True, said) in lines(BASE, found(new))


def test_a_lost_backend_fails_with_its_reason() -> None:
    environment = {"unavailable": {"it": "jax not installed"}}
    assert lines(BASE, found(target("other"), environment=environment))[:1] == [
        (True, "it: lost backend: jax not installed")
    ]


@pytest.mark.parametrize("what", ["graph", "allocation", "tolerance"])
def test_budgets(what: str) -> None:
    old = found(target(**{what: {"operations": 12.0, "gone": 1.0}}))
    new = found(target(**{what: {"operations": 14.0, "new": 3.0}}))
    assert lines(old, new) == [
        (True, f"it: {what} gone: no longer measured"),
        (True, f"it: {what} operations: 14, was 12"),
        (False, f"it: {what} new: now measured"),
    ]
    assert (False, f"it: {what} operations: 12, was 14") in lines(new, old)


def test_ratios_may_move_by_noise_and_times_by_anything() -> None:
    """A ratio of one run is gated beyond what chance explains; an absolute time never is."""
    old = found(target(ratios={"over 32 kv heads": 0.3}, timings={"seconds": 1.0}))
    near = found(target(ratios={"over 32 kv heads": 0.37}, timings={"seconds": 99.0}))
    assert lines(old, near) == []
    far = found(target(ratios={"over 32 kv heads": 0.4}))
    assert lines(old, far) == [(True, "it: ratio over 32 kv heads: 0.4, was 0.3")]
    assert lines(far, old) == [(False, "it: ratio over 32 kv heads: 0.3, was 0.4")]
    assert lines(old, found(target())) == [(True, "it: ratio over 32 kv heads: no longer measured")]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (target(), target("it", law(used=0.4)),
         "it: causality float32: uses 0.4 of its bound, was at most 0.5"),
        (target(), target(profile="f32"), "it: judged by profile f32, was flash"),
        (target("it", law(held=False)), target(), "it: causality float32: now holds"),
        (target("it", law(held=None)), target(), "it: causality float32: is now judged, and holds"),
        (target("it", law(refused=2)), target(), "it: causality float32: 0 cases refused, were 2"),
        (target("it", not_exercised={"sinks": "no"}), target(), "it: now exercised: sinks"),
        (target(), target("it", law(), law("within-hull")),
         "it: within-hull float32: not in the baseline yet"),
    ],
)  # fmt: skip
def test_whatever_gets_tighter_is_to_be_locked_in(old: Any, new: Any, said: str) -> None:
    assert lines(found(old), found(new)) == [(False, said)]


def test_a_new_target_must_hold() -> None:
    assert lines(BASE, BASE | found(target("new"))) == [(False, "new: not in the baseline yet")]
    broken = found(target("new", law(held=False)))
    assert (True, "new: causality float32: broke (not in the baseline yet)") in lines(
        BASE, BASE | broken
    )


def test_what_was_broken_may_stay_so() -> None:
    old = found(target("it", law(held=False)))
    assert lines(old, old) == []


def test_other_cases_are_compared_by_their_shares() -> None:
    """Other seeds draw other cases: a few more refusals are chance, many are not."""
    old = found(target("it", law(examples=95, refused=5)))
    assert lines(old, found(target("it", law(examples=90, refused=10, used=0.9)), seed=1)) == []
    assert lines(old, found(target("it", law(examples=50, refused=50)), seed=1)) == [
        (True, "it: causality float32: 50% of the cases refused, were 5%")
    ]
    assert lines(old, found(target("it", law(examples=40)), seed=1)) == [
        (True, "it: looked at 40 cases, fewer than half of 100")
    ]
    # A run that was bounded by time may have seen other cases of the same seed.
    bounded = {"environment": {"seconds": 3.0}}
    assert lines(found(target(), **bounded), found(target("it", law(used=0.9)), **bounded)) == []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (True, False, [(True, "a = b: broke")]),
        (True, None, [(True, "a = b: no longer judged")]),
        (None, False, [(True, "a = b: broke")]),
        (None, True, [(False, "a = b: now holds")]),
        (False, True, [(False, "a = b: now holds")]),
        (False, None, []),
    ],
)
def test_pairs(old: bool | None, new: bool | None, expected: list[tuple[bool, str]]) -> None:
    assert lines(found(target(), pairs=[pair(old)]), found(target(), pairs=[pair(new)])) == expected


def test_lost_and_new_pairs() -> None:
    assert lines(found(target(), pairs=[pair(True)]), found(target())) == [
        (True, "a = b: no longer compared")
    ]
    assert lines(found(target()), found(target(), pairs=[pair(False)])) == [(True, "a = b: broke")]
