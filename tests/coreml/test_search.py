"""What the search finds in coremltools 9.0, and that it is silent once that is mended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from equivalence.backends import coreml_graph
from equivalence.converters.subject import ConverterSubject
from equivalence.declaration import declaration_of
from equivalence.engine import check_target
from equivalence.faults import outdated_faults
from equivalence.kinds import kind_named
from equivalence.laws import all_laws, law_named
from equivalence.request import Request
from equivalence.results import TargetResult
from tests.coreml.patched import patched

FAULTS = {
    f"{route}-{i}-{fault.law}": (route, fault)
    for route in ("trace", "export")
    for i, fault in enumerate(declaration_of(getattr(coreml_graph, route)).known_faults)
}


def opened(function: Any) -> Any:
    return kind_named("converter").open(function, function.__name__, {})


def verdict(function: Any, law: str, case: Any) -> Any:
    return law_named(law).check(case, ConverterSubject(opened(function), None))


@pytest.mark.parametrize("name", list(FAULTS))
def test_each_known_fault_still_shows_and_is_gone_once_mended(name: str) -> None:
    route, fault = FAULTS[name]
    trouble = verdict(getattr(coreml_graph, route), fault.law, fault.case).trouble
    assert trouble is not None, f"a newer coremltools mended it: {fault.note}"
    assert trouble.kind == fault.trouble
    if route == "trace":
        assert verdict(patched, fault.law, fault.case).status in ("held", "vacuous")


def test_a_fault_that_is_mended_is_shouted_out() -> None:
    function = coreml_graph.trace
    target = kind_named("converter").open(
        patched, "patched", {"known_faults": declaration_of(function).known_faults[:2]}
    )
    domain = kind_named("converter").trials(target, ("float16",)).domain
    gone = outdated_faults(target, domain.but(dtypes=("float16", "float32")), all_laws("converter"))
    assert len(gone) == 2
    assert all("a known fault is gone" in failure.trouble.text for failure in gone)


@pytest.mark.parametrize(
    ("route", "examples"),
    [
        ("trace", 3),
        pytest.param("export", 6, marks=pytest.mark.slow),
        pytest.param("trace_double", 6, marks=pytest.mark.slow),
        pytest.param("trace_strict", 6, marks=pytest.mark.slow),
    ],
)
def test_a_short_search_holds(
    route: str, examples: int, count_checks: Callable[[TargetResult], None]
) -> None:
    """With the known faults declared; every law judges something."""
    function = getattr(coreml_graph, route)
    result = check_target(opened(function), Request(examples=examples, dtypes=("float16",), seed=3))
    assert result.held, [(f.case, f.trouble.text) for f in result.failures]
    assert result.shares.checks >= examples
    count_checks(result)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_a_search_that_knows_nothing_finds_and_names_them_all() -> None:
    target = opened(coreml_graph.either_route)
    result = check_target(target, Request(examples=300, dtypes=("float16",)))
    found = {(f.case.formulation, f.diagnosis.kind) for f in result.failures}
    assert ("sdpa_gqa", "head-mapping") in found
    assert ("cache_indexed", "dropped-op") in found
    assert "fully-masked-row" in {kind for _, kind in found}


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_the_same_search_is_silent_once_they_are_mended() -> None:
    result = check_target(opened(patched), Request(examples=300, dtypes=("float16",)))
    assert result.held, [(f.case, f.trouble.text) for f in result.failures]


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", ["strict", "double"])
def test_the_other_modes_hold(mode: str) -> None:
    function = getattr(coreml_graph, f"trace_{mode}")
    result = check_target(opened(function), Request(examples=80))
    assert result.held, [(f.case, f.trouble.text) for f in result.failures]
