"""Every formulation for every deployment target by both routes: right, or refused as is known."""

from __future__ import annotations

from itertools import product

import pytest

from equivalence.backends import coreml_graph
from equivalence.converters.case import ConverterCase
from equivalence.converters.formulations import FORMULATIONS
from equivalence.converters.subject import ConverterSubject
from equivalence.coreml.conversion import ROUTES, STATES_FROM, TARGETS
from equivalence.kinds import kind_named
from tests.mil.test_whole_graphs import case_of

SHAPES = ("static", "range", "enumerated")


def cases_of(formulation: str) -> list[ConverterCase]:
    """For each target and route one, in both precisions and all kinds of shape by turns."""
    fixed = FORMULATIONS[formulation].family == "cache"
    cases = []
    for number, target in enumerate(TARGETS):
        for other, route in enumerate(ROUTES):
            shapes = "static" if fixed else SHAPES[(number + 2 * other) % 3]
            keeps = FORMULATIONS[formulation].keeps_states  # in float16 only
            dtype = ("float16", "float32")[(number + other) % 2 and not keeps]
            more = {} if shapes == "static" else {"example_len": 4}
            case = case_of(formulation, dtype, route=route, target=target, shapes=shapes, **more)
            cases.append(case)
    return cases


def expected(case: ConverterCase) -> tuple[str, str]:
    """What comes of it, and why: all that coremltools 9.0 refuses or gets wrong here."""
    assert case.target is not None
    late = case.target >= STATES_FROM
    match case.formulation, case.route:
        case "repeat_interleave", "trace":
            return "refused", "expects tensor or scalar of dtype"
        case "sdpa_gqa", _ if not late:
            return "refused", "Incompatible dim 1 in shapes"
        case "sdpa_gqa", _ if not case.dynamic:
            return "refused", "must have a same batch dimension"
        case "sdpa_gqa", _:
            return "broken", "disagrees with float64 attention"
        case _, _ if case.about.keeps_states and not late:
            return "refused", "has no states; they need iOS18"
        case "cache_slice", "export":
            return "refused", "data-dependent"
        case "cache_indexed", "trace":
            return "broken", "disagrees with float64 attention"
    return "held", ""


@pytest.mark.slow
@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_it_is_right_or_what_is_known_of_coremltools(formulation: str) -> None:
    target = kind_named("converter").open(coreml_graph.either_route, "either", {})
    own = ConverterSubject(target, None)  # type: ignore[arg-type]
    cases = cases_of(formulation)
    assert {(case.target, case.route) for case in cases} == {*product(TARGETS, ROUTES)}
    for case in cases:
        outcome = own.outcome(case)
        verdict = own.judge(case, outcome)
        status, why = expected(case)
        assert verdict.status == status, (case, outcome.text, verdict)
        said = outcome.text if verdict.trouble is None else verdict.trouble.text
        assert why in said, (case, said)
