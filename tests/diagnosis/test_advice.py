"""What may be meant is told how to declare; what is so in some calls only is not."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from equivalence.calling import LocalTarget
from equivalence.engine import Request, check_target


def attend(query: Tensor, key: Tensor, value: Tensor, diagonal: int | None) -> Tensor:
    """Grouped attention in float32; a query sees keys up to its own position plus ``diagonal``."""
    key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], 1) for x in (key, value))
    scores = query @ key.mT * query.shape[-1] ** -0.5
    if diagonal is not None:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(diagonal)
        scores = scores.masked_fill(~seen, -torch.inf)
    return scores.softmax(-1) @ value


def clamped(query: Tensor, key: Tensor, value: Tensor, *, is_causal: bool = False) -> Tensor:
    """Lower-right causal order, but upper-left where there are more queries than keys."""
    return attend(query, key, value, max(key.shape[2] - query.shape[2], 0) if is_causal else None)


def upper_left(query: Tensor, key: Tensor, value: Tensor, *, is_causal: bool = False) -> Tensor:
    """Upper-left causal order everywhere."""
    return attend(query, key, value, 0 if is_causal else None)


def interleaved(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Query head h reads key/value head h % num_kv_heads."""
    group = query.shape[1] // key.shape[1]
    return attend(query, key.repeat(1, group, 1, 1), value.repeat(1, group, 1, 1), None)


def of_two_heads(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """So where there are two key/value heads."""
    return (interleaved if key.shape[1] == 2 else upper_left)(query, key, value)


def of_many_heads(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """So above six query heads."""
    return (interleaved if query.shape[1] > 6 else upper_left)(query, key, value)


@pytest.mark.parametrize(
    ("kernel", "advice"),
    [
        (interleaved, "; if that is meant: --declare head_order=interleaved"),
        (of_two_heads, ", but in some calls only: others are right as they should be"),
        pytest.param(
            of_many_heads,
            ", but in some calls only: others are right as they should be",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_another_map_of_heads_is_advised_where_all_calls_have_it(kernel, advice):
    asked = Request(examples=20, dtypes=("float32",), laws=("agrees-with-float64",))
    (failure,) = check_target(LocalTarget.of(kernel, name="kernel"), asked).failures
    assert failure.diagnosis.text.endswith(f"the map is interleaved (h % num_kv_heads){advice}")


@pytest.mark.parametrize(
    ("kernel", "advice"),
    [
        (clamped, ", but in some calls only: others are right as they should be"),
        (upper_left, "; if that is meant: --declare causal=upper_left"),
    ],
)
def test_a_declaration_is_advised_where_it_would_help(kernel, advice):
    asked = Request(examples=25, dtypes=("float32",), laws=("agrees-with-float64",))
    (failure,) = check_target(LocalTarget.of(kernel, name="kernel"), asked).failures
    assert failure.diagnosis.kind == "causal-alignment"
    expected = "causal masking is anchored upper-left, expected lower-right"
    assert failure.diagnosis.text == expected + advice
