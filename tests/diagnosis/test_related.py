"""A law about two calls that breaks beside a named mistake tells the same mistake."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from equivalence.calling import LocalTarget
from equivalence.case import AttentionCase
from equivalence.engine import Request, check_target
from equivalence.faults import same_fault
from equivalence.results import Diagnosis, Failure, TargetResult
from equivalence.verdict import Trouble

LAWS = ("agrees-with-float64", "key-permutation", "chunks-equal-prefill")


def attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, causal: bool, scale: Any
) -> Tensor:
    """Grouped attention in float32, lower-right causal."""
    key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], 1) for x in (key, value))
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = query @ key.transpose(-1, -2) * scale
    if causal:
        rows, columns = scores.shape[-2:]
        seen = torch.ones(rows, columns, dtype=torch.bool).tril(columns - rows)
        scores = scores.masked_fill(~seen, float("-inf"))
    scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(-1) @ value


def short(
    query: Tensor, key: Tensor, value: Tensor, *, is_causal: bool = False, scale: Any = None
) -> Tensor:
    """Forgets a last key that is alone in its block of 4."""
    mask = torch.ones(1, 1, 1, key.shape[2], dtype=torch.bool)
    if key.shape[2] > 4 and key.shape[2] % 4 == 1:
        mask[..., -1] = False
    return attend(query, key, value, mask, is_causal, scale)


def checked(kernel: Any) -> TargetResult:
    target = LocalTarget.of(kernel, name=kernel.__name__, facts={})
    return check_target(target, Request(examples=16, dtypes=("float32",), laws=LAWS))


def test_one_mistake_is_one_fault() -> None:
    result = checked(short)
    broken = {law.law for law in result.laws if law.held is False}
    assert {"agrees-with-float64", "chunks-equal-prefill"} <= broken
    assert [failure.diagnosis.kind for failure in result.failures] == ["head-dim-tail"]


def test_a_mistake_that_only_two_calls_show_is_still_told() -> None:
    calls = {"made": 0}

    def drifting(
        query: Tensor, key: Tensor, value: Tensor, *, is_causal: bool = False, scale: Any = None
    ) -> Tensor:
        calls["made"] += 1
        output = short(query, key, value, is_causal=is_causal, scale=scale)
        return output * 1.5 if calls["made"] > 200 and query.shape[2] == 1 else output

    result = checked(drifting)
    kinds = {failure.diagnosis.kind for failure in result.failures}
    assert kinds - {"head-dim-tail"}


def failure(text: str) -> Failure:
    trouble = Trouble(kind="outside-bound", text="disagrees", error=1.0, allowed=0.1)
    return Failure(
        law="agrees-with-float64",
        dtype="float64",
        case=AttentionCase(kv_len=len(text), dtype="float64"),
        trouble=trouble,
        diagnosis=Diagnosis(kind="precision", text=text),
        replay="",
    )


def test_by_how_much_a_precision_is_off_makes_no_other_fault() -> None:
    said = "errors are up to {} times what profile f64 allows and within that of profile {}"
    one, other = failure(said.format("6.17e+06", "single")), failure(said.format("3.2", "single"))
    assert same_fault(one, other)
    assert not same_fault(one, failure(said.format("6.17e+06", "bf16_inside")))
