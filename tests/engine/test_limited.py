"""A target that refuses most of what it is asked says so, and does not look green."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import Tensor

from equivalence.calling import LocalTarget
from equivalence.engine import Request, check_target
from equivalence.report.json import to_json
from equivalence.report.summary import sentence
from equivalence.report.tables import WORDS, law_table
from equivalence.results import RunResult, TargetResult


def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    group, uneven = divmod(query.shape[1], key.shape[1])
    if uneven:
        raise ValueError("heads")
    key, value = (x.repeat_interleave(group, 1) for x in (key, value))
    return torch.softmax(query @ key.mT * query.shape[-1] ** -0.5, -1) @ value


def up_to(most: int) -> Any:
    def kernel(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        output = attend(query, key, value)
        if query.shape[0] * query.shape[1] * query.shape[2] * key.shape[2] > most:
            raise NotImplementedError(f"more than {most} scores")
        return output

    return kernel


def checked(kernel: Any, **facts: Any) -> TargetResult:
    target = LocalTarget.of(kernel, name="picky", facts=facts)
    return check_target(target, Request(dtypes=("float32",), examples=20))


def test_one_that_refuses_most_is_limited_and_held_on_the_rest() -> None:
    result = checked(up_to(200))
    assert result.held is True
    assert 0.5 <= result.limited < 0.95
    assert sentence(result).startswith(f"picky is limited: it refused {result.limited:.0%}")
    marks = {row[0]: row[1] for row in law_table(result, WORDS).rows}
    assert marks["agrees-with-float64"] == "limited"
    assert marks["bad-head-counts-are-refused"] == "held"
    run = RunResult(targets=[result])
    assert run.exit_code == 0
    assert json.loads(to_json(run))["targets"][0]["limited"] == pytest.approx(result.limited)


def test_what_its_author_excludes_is_limited_and_accepted() -> None:
    def small(case: Any) -> bool | str:
        return case.batch_size * case.num_heads * case.q_len * case.kv_len <= 16 or "too large"

    result = checked(attend, supports=small)
    assert result.limited >= 0.9
    assert not result.hardly_judged
    assert RunResult(targets=[result]).exit_code == 0


def test_one_that_answers_is_not_limited() -> None:
    result = checked(attend)
    assert (result.held, result.limited) == (True, 0.0)
    assert sentence(result).startswith("picky holds")


def test_one_that_refuses_all_but_the_tiny_calls_was_hardly_judged() -> None:
    calls = iter(range(10**6))

    def tired(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        output = attend(query, key, value)
        if next(calls) > 60:  # the trials are over
            raise NotImplementedError("no more")
        return output

    result = checked(tired)
    assert result.hardly_judged
    assert result.held is None or "declare what it takes" in sentence(result)
    assert RunResult(targets=[result]).exit_code == 1
