"""What tiny calls show of a kernel before anything is drawn, however it is written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from equivalence.calling import LocalTarget
from equivalence.case import AttentionCase
from equivalence.engine import Request, check_target
from equivalence.isolation.opening import open_target
from equivalence.isolation.target import IsolatedTarget
from equivalence.kinds import kind_named
from equivalence.loading import load
from equivalence.resolve import resolve
from equivalence.results import TargetResult

ATTENTION = """
import torch

def {name}(query, key, value):
    {line}
    group, uneven = divmod(query.shape[1], key.shape[1])
    if uneven:
        raise ValueError("heads")
    key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
    return torch.softmax(scores, -1) @ value
"""


def attend(query: Tensor, key: Tensor, value: Tensor, *, causal: bool = False) -> Tensor:
    """Grouped attention; causal from the upper left."""
    group, uneven = divmod(query.shape[1], key.shape[1])
    if uneven:
        raise ValueError("heads")
    key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
    if causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        scores = scores.masked_fill(~seen, float("-inf"))
    return torch.softmax(scores, -1) @ value


class Upper(torch.nn.Module):
    """Causal from the upper left, and called through ``__call__(*args, **kwargs)``."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, is_causal: bool = False) -> Tensor:
        return attend(query, key, value, causal=is_causal)


def dense(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    if not (query.is_contiguous() and key.is_contiguous() and value.is_contiguous()):
        raise RuntimeError("inputs must be contiguous")
    return attend(query, key, value)


def check(kernel: Any, **request: Any) -> TargetResult:
    target = LocalTarget.of(kernel, name="kernel")
    return check_target(target, Request(**{"examples": 8, "dtypes": ("float32",), **request}))


def test_the_options_of_a_module_are_those_of_its_forward() -> None:
    assert LocalTarget.of(Upper(), name="upper").options == {"causal": "is_causal"}
    result = check(Upper(), laws=("agrees-with-float64", "causality", "decode-equals-prefill"))
    assert [failure.diagnosis.kind for failure in result.failures] == ["causal-alignment"]


def test_a_kernel_of_contiguous_inputs_is_called_with_no_others() -> None:
    result = check(dense)
    assert result.held is True
    for memory in ("bshd", "sliced", "transposed", "expanded"):
        assert "must be contiguous" in result.not_exercised[f"memory {memory}"]


@pytest.mark.parametrize("kind", ["mla", "varlen", "paged"])
def test_other_kinds_of_contiguous_inputs_too(kind: str) -> None:
    names = {"mla": "mla.expanded", "varlen": "varlen.one_by_one", "paged": "paged.gathered"}
    whole = load(resolve(names[kind]))
    assert isinstance(whole, LocalTarget)

    def picky(*tensors: Any, **options: Any) -> Any:
        if any(isinstance(t, Tensor) and not t.is_contiguous() for t in tensors):
            raise RuntimeError("inputs must be contiguous")
        return whole.function(*tensors, **options)

    target = LocalTarget(
        name=kind, function=picky, declaration=whole.declaration, options=whole.options
    )
    trials = kind_named(kind).trials(target, ("float32",))
    assert "bshd" not in trials.domain.memories


def test_a_kernel_that_works_once_crashes() -> None:
    calls = 0

    def once(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise OSError("gone")
        return attend(query, key, value)

    result = check(once)
    assert result.crashed
    assert result.failures[0].trouble.text.endswith("fails in a later call: OSError: gone")


def test_a_crash_in_a_trial_is_shrunk(tmp_path: Path) -> None:
    file = tmp_path / "aborts.py"
    line = f"__import__({os.__name__!r}).abort() if key.shape[2] == 3 else None"
    file.write_text(ATTENTION.format(name="aborts", line=line))
    target = open_target(f"{file}:aborts")
    try:
        result = check_target(target, Request(examples=10, dtypes=("float32",)))
    finally:
        target.close()
    assert result.failures[0].case == AttentionCase(kv_len=3)


def test_a_file_in_a_package_imports_its_neighbours(tmp_path: Path) -> None:
    inner = tmp_path / "acme_kernels" / "inner"
    inner.mkdir(parents=True)
    (inner.parent / "__init__.py").touch()
    (inner / "__init__.py").touch()
    (inner.parent / "shared.py").write_text(ATTENTION.format(name="shared", line="pass"))
    file = inner / "mine.py"
    file.write_text(
        "from ..shared import shared\n\ndef mine(q, k, v):\n    return shared(q, k, v)\n"
    )
    target = open_target(f"{file}:mine")
    try:
        assert check_target(target, Request(examples=3, dtypes=("float32",))).held is True
    finally:
        target.close()


def test_a_parameter_of_another_name_is_listed_and_can_be_declared() -> None:
    def kernel(query: Tensor, key: Tensor, value: Tensor, is_cuasal: bool = False) -> Tensor:
        return attend(query, key, value, causal=is_cuasal)

    assert "never given" in check(kernel).not_exercised["parameter is_cuasal"]
    facts = {"options": {"causal": "is_cuasal"}, "causal": "upper_left"}
    target = LocalTarget.of(kernel, name="kernel", facts=facts)
    result = check_target(target, Request(examples=8, dtypes=("float32",)))
    assert result.held is True
    assert not [name for name in result.not_exercised if name.startswith("parameter")]


def test_a_worker_tells_the_parameters_that_it_never_gets(tmp_path: Path) -> None:
    file = tmp_path / "other.py"
    file.write_text("def other(q, k, v, is_causal=False, *, block=16):\n    return q\n")
    target = open_target(f"{file}:other")
    try:
        assert isinstance(target, IsolatedTarget)
        assert target.unknown_parameters == ["block"]
    finally:
        target.close()


def test_a_time_that_is_too_short_still_judges_two_cases_in_each_dtype() -> None:
    result = check(attend, seconds=1e-3, examples=15)
    dtypes = {law.dtype for law in result.laws}
    assert result.held is True
    assert result.shares.cases == 2 * len(dtypes) > 0
    cut = "the time limit ended the search after 2 of 15 cases"
    assert {text for text in result.remarks if "time limit" in text} == {
        f"{dtype}: {cut}" for dtype in dtypes
    }


def test_another_layout_is_the_only_fault_and_names_what_accepts_it() -> None:
    def bshd(query: Tensor, key: Tensor, value: Tensor, causal: bool = False) -> Tensor:
        swapped = (tensor.transpose(1, 2) for tensor in (query, key, value))
        return attend(*swapped, causal=causal).transpose(1, 2)

    result = check(bshd, examples=10, laws=("agrees-with-float64",))
    assert [failure.diagnosis.kind for failure in result.failures] == ["layout"]
    assert result.failures[0].diagnosis.text.endswith("--declare layout=BSHD")
    assert not result.crashed


def for_numpy(query: Any, key: Any, value: Any) -> Any:
    return query.astype("float32")


def test_a_kernel_that_wants_numpy_is_told_how() -> None:
    target = LocalTarget.of(for_numpy, name="for_numpy", facts={})
    trouble = check_target(target, Request(examples=1)).trouble
    assert "--arrays numpy" in str(trouble)
    told = LocalTarget.of(for_numpy, name="for_numpy", facts={"arrays": "numpy"})
    assert "--arrays numpy" not in str(check_target(told, Request(examples=1)).trouble)


def with_slopes(query, key, value, *, causal=False, alibi_slopes=None, sign=-1.0):
    """ALiBi is served by the causal kernel alone, as many servers do."""
    if alibi_slopes is not None and not causal:
        raise NotImplementedError("alibi_slopes need causal=True")
    group, uneven = divmod(query.shape[1], key.shape[1])
    if uneven:
        raise NotImplementedError("heads")
    key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    scores = query @ key.mT * query.shape[-1] ** -0.5
    distance = torch.arange(query.shape[2])[:, None] - torch.arange(key.shape[2])
    distance = distance + key.shape[2] - query.shape[2]
    if alibi_slopes is not None:
        scores = scores + sign * alibi_slopes[:, None, None] * distance.abs()
    if causal:
        scores = scores.masked_fill(distance < 0, -torch.inf)
    return scores.softmax(-1).nan_to_num(0.0).to(query.dtype) @ value


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_an_option_that_needs_causal_is_tried_with_it(sign):
    def kernel(query, key, value, *, causal=False, alibi_slopes=None):
        return with_slopes(query, key, value, causal=causal, alibi_slopes=alibi_slopes, sign=sign)

    target = LocalTarget.of(kernel, name="kernel")
    trials = kind_named("attention").trials(target, ("float32",))
    assert trials.domain.alibi
    assert trials.domain.needs_causal == ("alibi",)
    assert "alibi_slopes" not in trials.not_exercised
    assert "need causal=True" in trials.not_exercised["alibi_slopes without causal"]
    request = Request(
        examples=30, dtypes=("float32",), laws=("agrees-with-float64", "options-are-not-ignored")
    )
    result = check_target(target, request)
    assert [f.diagnosis.text for f in result.failures] == ["ALiBi is added with the wrong sign"] * (
        sign > 0
    )
    alone = next(law for law in result.laws if law.law == "options-are-not-ignored")
    assert alone.examples - alone.vacuous > 5
