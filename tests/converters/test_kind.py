"""Converters without a runtime: a perfect one holds, and each broken one is found and named."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import given, settings

from equivalence.cli.replaying import replay_case
from equivalence.converters.case import ConverterCase
from equivalence.converters.domain import ConverterDomain
from equivalence.converters.formulations import FORMULATIONS
from equivalence.converters.inputs import asked_inputs
from equivalence.converters.source import source_output
from equivalence.converters.subject import ConverterSubject
from equivalence.coreml.conversion import ROUTES, TARGETS
from equivalence.engine import check_target
from equivalence.errors import InvalidRequest
from equivalence.kinds import kind_named
from equivalence.replay import case_text, parse_case
from equivalence.request import Request
from equivalence.results import TargetResult
from equivalence.strategies.converters import converter_cases, covering_cases
from tests.converters.broken import BROKEN, perfect


def checked(function: Any, *laws: str) -> Any:
    target = kind_named("converter").open(function, function.__name__, {})
    return check_target(target, Request(examples=60, dtypes=("float32",), laws=laws or None))


def test_a_perfect_converter_holds(count_checks: Callable[[TargetResult], None]) -> None:
    target = kind_named("converter").open(perfect, "perfect", {})
    result = check_target(target, Request(examples=100))
    assert result.held, [failure.trouble for failure in result.failures]
    count_checks(result)
    by_name = {law.law: law for law in result.laws if law.dtype == "float32"}
    silent = [name for name, law in by_name.items() if not law.examples]
    assert silent == ["formulations-agree-to-the-bit"]  # it does not compute in float64
    summary = result.shares.summary()
    assert summary["vacuous"] <= 0.1
    assert summary["grouped"] >= 0.4


@pytest.mark.parametrize("name", list(BROKEN))
def test_a_broken_converter_is_found_and_named(name: str) -> None:
    function, diagnosis, law = BROKEN[name]
    _found_and_named(checked(function, law), diagnosis, law)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(BROKEN))
def test_a_broken_converter_is_found_and_named_among_all_laws(name: str) -> None:
    function, diagnosis, law = BROKEN[name]
    _found_and_named(checked(function), diagnosis, law)


def _found_and_named(result: TargetResult, diagnosis: str, law: str) -> None:
    assert result.held is False
    found = {failure.diagnosis.kind for failure in result.failures}
    assert diagnosis in found, found
    assert any(result_of.law == law and result_of.held is False for result_of in result.laws)


def test_interleaved_heads_shrink_to_the_smallest_case() -> None:
    result = checked(BROKEN["InterleavesHeads"][0])
    (failure,) = (f for f in result.failures if f.diagnosis.kind == "head-mapping")
    assert failure.case == ConverterCase(num_kv_heads=2, group_size=2)
    assert "query head 1 reads kv head 1, expected 0" in failure.diagnosis.text
    assert "interleaved" in failure.diagnosis.text


def test_a_converter_without_reset_refuses_states() -> None:
    def plain(module: Any, example_inputs: Any) -> Any:
        return lambda *tensors: module(*tensors)

    target = kind_named("converter").open(plain, "plain", {})
    case = ConverterCase(formulation="cache_slice", kv_len=2)
    outcome = target.call(ConverterSubject(target, None).inputs(case))  # type: ignore[arg-type]
    assert outcome.status == "refused"
    assert outcome.text.endswith("has no reset()")


def test_a_shape_is_converted_once_for_all_numbers() -> None:
    converted = []

    def counting(module: Any, example_inputs: Any, *, target: str = "iOS18") -> Any:
        converted.append(target)
        return lambda *tensors: module(*tensors)

    target = kind_named("converter").open(counting, "counting", {})
    subject = ConverterSubject(target, None)  # type: ignore[arg-type]
    case = ConverterCase(kv_len=3, head_dim=4, values="normal")
    for again in (case, case.but(seed=7), case.but(values="peaky"), case.but(magnitude=3.0)):
        assert subject.outcome(again).status == "returned"
    assert len(converted) == 1
    for other in ({"kv_len": 4}, {"dtype": "float16"}, {"target": "iOS16"}, {"group_size": 2}):
        subject.outcome(case.but(**other))
    subject.outcome(case.but(formulation="broadcast"))
    assert converted == ["iOS18"] * 3 + ["iOS16"] + ["iOS18"] * 2


def test_a_replay_converts_the_case_and_what_laws_hold_it_against(
    capsys: pytest.CaptureFixture[str],
) -> None:
    converted = []

    def counting(module: Any, example_inputs: Any) -> Any:
        converted.append(type(module).__name__)
        return lambda *tensors: module(*tensors)

    target = kind_named("converter").open(counting, "counting", {})
    assert replay_case(target, ConverterCase(kv_len=3, values="normal"), None, {}) == 0
    assert "counting holds: " in capsys.readouterr().out
    assert converted == ["RepeatKV", "Broadcast"]


@pytest.mark.parametrize("name", list(FORMULATIONS))
def test_every_formulation_computes_what_it_is_judged_by(name: str) -> None:
    """In torch, in float32, within the bound: the reference is what the module means."""
    sizes: dict[str, Any] = {"batch_size": 2, "kv_len": 5, "head_dim": 6, "values": "normal"}
    about = FORMULATIONS[name]
    if about.family == "mla":
        sizes |= {"group_size": 3, "latent_dim": 5, "q_len": 3}
    elif about.family == "rotary":
        sizes |= {"num_kv_heads": 3}
    else:
        sizes |= {"num_kv_heads": 2, "group_size": 1 if about.equal_heads else 3}
        if about.family == "attention" and not about.decode:
            sizes |= {"q_len": 3, "causal": True, "value_head_dim": 4, "scale": 0.3}
    case = ConverterCase(formulation=name, **sizes)
    target = kind_named("converter").open(perfect, "perfect", {})
    subject = ConverterSubject(target, None)  # type: ignore[arg-type]
    verdict = subject.judge(case, subject.outcome(case))
    assert verdict.status == "held", verdict
    assert source_output(case).shape == subject.outcome(case).output.shape
    assert asked_inputs(case) is asked_inputs(case)


@given(converter_cases())
@settings(max_examples=60, deadline=None, derandomize=True)
def test_every_drawn_case_can_be_pasted_back(case: ConverterCase) -> None:
    assert parse_case(case_text(case)) == case
    assert case.example.example == case.example


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"formulation": "q_fold_decode", "q_len": 2}, "q_fold_decode: q_len=2 must be 1"),
        ({"formulation": "sdpa", "group_size": 2}, "sdpa: group_size=2 must be 1"),
        ({"formulation": "rotary_half"}, "rotary_half: head_dim=1 must be even"),
        ({"formulation": "sparse"}, "formulation='sparse' is not one of repeat_kv"),
        ({"example_len": 3}, "repeat_kv: example_len needs flexible shapes"),
    ],
)
def test_impossible_cases_are_refused_at_the_door(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        ConverterCase(**fields)


@pytest.mark.parametrize("seed", range(12))
def test_planned_cases_hold_every_two_ways_of_converting(seed: int) -> None:
    domain = ConverterDomain(
        routes=ROUTES, deployment_targets=TARGETS, dtypes=("float16",), compressions=(None, "int8")
    )
    cases = covering_cases(domain, seed)
    assert len(set(cases)) == len(cases) == 5 * len(FORMULATIONS)
    by_name = {
        "formulation": domain.formulations, "shapes": domain.shapes, "route": ROUTES,
        "target": TARGETS, "compression": domain.compressions,
    }  # fmt: skip
    for first, second in combinations(by_name, 2):
        found = {(getattr(c, first), getattr(c, second)) for c in cases}
        possible = {
            (a, b)
            for a, b in product(by_name[first], by_name[second])
            if _possible(**{first: a, second: b})
        }
        assert possible <= found, possible - found


def _possible(formulation: str = "repeat_kv", shapes: str = "static", **rest: Any) -> bool:
    family = FORMULATIONS[formulation].family
    if family == "cache" and shapes != "static":
        return False
    return family != "rotary" or rest.get("compression") is None


@pytest.mark.parametrize("seed", range(12))
def test_planned_cases_reach_what_only_three_choices_together_show(seed: int) -> None:
    """Grouped heads, a flexible length and a late target; a state on the trace route."""
    domain = ConverterDomain(routes=ROUTES, deployment_targets=TARGETS, dtypes=("float16",))
    cases = covering_cases(domain, seed)
    late = [c for c in cases if c.target in TARGETS[3:]]
    for name in ("repeat_kv", "sdpa_gqa", "einsum"):
        assert any(
            c.formulation == name and c.dynamic and c.num_kv_heads > 1 and c.group_size > 1
            for c in late
        )
    for name in ("cache_slice", "cache_indexed"):
        assert {c.route for c in late if c.formulation == name} == set(ROUTES)
