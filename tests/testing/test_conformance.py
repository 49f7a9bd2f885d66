"""What ``equivalence.conformance`` makes of its arguments."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import equivalence


def grouped(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, enable_gqa=True)


def refuses(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    raise NotImplementedError("not yet")


def items(test: Any) -> list[tuple[str, ...]]:
    """The parameters of a test that ``conformance`` made, without running it."""
    marks = {mark.args[0]: list(mark.args[1]) for mark in test.pytestmark}
    return [(law, dtype) for law in marks["law"] for dtype in marks["dtype"]]


def test_one_item_for_each_law_and_dtype() -> None:
    test = equivalence.conformance(grouped, dtypes=["float32", "bfloat16"])
    laws = {law for law, _ in items(test)}
    assert len(items(test)) == 2 * len(laws)
    assert {"agrees-with-float64", "causality"} <= laws
    assert "log-sum-exp" not in laws
    declared = equivalence.conformance(grouped, lse="natural", dtypes=["float32"])
    assert ("log-sum-exp", "float32") in items(declared)


def test_an_item_runs_alone(pytestconfig: pytest.Config) -> None:
    test = equivalence.conformance(grouped, dtypes=["float32"], examples=20)
    seen: dict[str, object] = {}
    test("agrees-with-float64", "float32", seen.__setitem__, pytestconfig)
    assert seen["equivalence.checks"] >= 15
    assert 0 < seen["equivalence.used"] <= 1


def test_refusing_everything_is_not_green(pytestconfig: pytest.Config) -> None:
    test = equivalence.conformance(refuses, dtypes=["float32"])
    with pytest.raises(equivalence.Disagreement, match="not yet"):
        test("agrees-with-float64", "float32", lambda name, value: None, pytestconfig)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dtypes": ["float8"]}, "'float8'"),
        ({"laws": ["agres-with-float64"]}, "did you mean agrees-with-float64"),
        ({"casual": "lower_right"}, "'casual' cannot be declared"),
        ({"causal": "lower_left"}, "causal='lower_left'"),
    ],
)
def test_bad_arguments_are_refused_at_once(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(equivalence.InvalidRequest, match=message):
        equivalence.conformance(grouped, **arguments)
