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


@pytest.mark.parametrize(
    ("kernel", "advice"),
    [
        (clamped, ", but in some calls only: others are right as they should be"),
        (upper_left, "; if that is meant: --declare causal=upper_left"),
    ],
)
def test_a_declaration_is_advised_where_it_would_help(kernel, advice):
    asked = Request(examples=60, dtypes=("float32",), laws=("agrees-with-float64",))
    (failure,) = check_target(LocalTarget.of(kernel, name="kernel"), asked).failures
    assert failure.diagnosis.kind == "causal-alignment"
    expected = "causal masking is anchored upper-left, expected lower-right"
    assert failure.diagnosis.text == expected + advice
