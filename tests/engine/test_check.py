"""The engine on small kernels: what it finds, how far it shrinks, and what it does not expect."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from equivalence.calling import LocalTarget
from equivalence.case import AttentionCase
from equivalence.declaration import KnownFault
from equivalence.declaration import attention as declare
from equivalence.engine import Request, check_target
from equivalence.law_search import BROKEN_ENOUGH
from equivalence.request import Progress
from equivalence.results import TargetResult


def repeated(query: Tensor, key: Tensor, value: Tensor, scale: float | None = None) -> Tensor:
    group, uneven = divmod(query.shape[1], key.shape[1])
    if uneven:
        raise ValueError("heads")
    key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    return torch.softmax(query @ key.transpose(-1, -2) * factor, -1) @ value


def folded(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
    """Folds query heads into [kv_heads, group], whatever their order is."""
    batch, heads, q_len, _ = query.shape
    if heads % key.shape[1]:
        raise ValueError("heads")
    query = query.reshape(batch, key.shape[1], -1, query.shape[-1])
    return repeated(query, key, value, **options).reshape(batch, heads, q_len, -1)


AGREES = ("agrees-with-float64",)


def check(kernel: Any, *, facts: dict[str, Any] | None = None, **request: Any) -> TargetResult:
    target = LocalTarget.of(kernel, name=kernel.__name__, facts=facts)
    return check_target(target, Request(**{"examples": 20, "dtypes": ("float32",), **request}))


def test_interleaved_heads_shrink_to_the_minimal_case() -> None:
    result = check(folded, facts={"head_order": "interleaved"}, laws=AGREES)
    first = result.failures[0]
    assert first.case == AttentionCase(num_kv_heads=2, group_size=2, head_order="interleaved")
    assert (first.trouble.got, first.trouble.expected) == (2.0, 1.0)
    assert first.diagnosis.kind == "head-mapping"
    assert check(folded, laws=AGREES).held is True


def test_the_clock_is_read_only_where_times_are_asked_for() -> None:
    laws = (*AGREES, "causality")
    asked = {"examples": 10, "laws": laws}
    plain, timed = (check(repeated, **asked, timings=times) for times in (False, True))
    assert not any(law.times for law in plain.laws)
    agreement = next(law for law in timed.laws if law.law == "agrees-with-float64")
    assert len(agreement.times) >= agreement.examples > 0
    assert min(agreement.times) >= 0


def test_two_faults_are_two_failures() -> None:
    def both(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        group = query.shape[1] // key.shape[1]
        if query.shape[1] % key.shape[1]:
            raise ValueError("heads")
        key, value = key.repeat(1, group, 1, 1), value.repeat(1, group, 1, 1)
        return repeated(query, key, value, scale=2 * query.shape[-1] ** -0.5)

    result = check(both)
    assert {"head-mapping", "scale"} <= {f.diagnosis.kind for f in result.failures}


def test_a_head_dim_that_is_asserted_is_a_limit() -> None:
    def narrow(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        assert query.shape[-1] in {64, 128}, "head_dim must be 64 or 128"
        return repeated(query, key, value)

    result = check(narrow, examples=12, laws=AGREES)
    assert result.held is True
    assert result.not_exercised["head_dim 80"] == "AssertionError: head_dim must be 64 or 128"


def test_an_exception_after_a_passed_trial_is_a_crash() -> None:
    def some_groups(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        if query.shape[1] // key.shape[1] in {3, 5} and query.shape[2] == 1:
            raise RuntimeError("no kernel for this group size")
        return repeated(query, key, value)

    result = check(some_groups)
    assert result.crashed
    (failure,) = result.failures
    assert failure.case == AttentionCase(group_size=3)
    assert failure.trouble.text == "RuntimeError: no kernel for this group size"


@pytest.mark.parametrize(
    ("spoil", "trouble"),
    [
        (lambda output: output[..., :1], "wrong-shape"),
        (lambda output: output.double(), "wrong-dtype"),
        (lambda output: None, "wrong-shape"),
    ],
)
def test_unusable_results_are_named(spoil: Any, trouble: str) -> None:
    def spoilt(query: Tensor, key: Tensor, value: Tensor) -> Any:
        return spoil(repeated(query, key, value))

    result = check(spoilt, examples=20)
    assert {f.trouble.kind for f in result.failures} == {trouble}


def test_refusing_everything_is_not_held() -> None:
    def refuses(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        raise NotImplementedError("no")

    result = check(refuses)
    assert result.held is None
    assert "NotImplementedError: no" in result.trouble


def test_refusing_grouped_heads_fails_only_who_promised_them() -> None:
    def equal(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        if query.shape[1] != key.shape[1]:
            raise NotImplementedError("equal heads only")
        return repeated(query, key, value)

    quiet = check(equal, laws=AGREES)
    promised = check(equal, laws=AGREES, facts={"grouped": True})
    assert (quiet.held, quiet.refuses_grouped) == (True, True)
    assert [f.diagnosis.kind for f in promised.failures] == ["refusal"]


def laundering(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return repeated(query, key, value).nan_to_num(0.0)


KNOWN = KnownFault(
    law="visible-nan-is-kept",
    trouble="nan-laundered",
    case=AttentionCase(),
    note="NaN becomes zero",
)


def test_a_known_fault_is_shown_and_breaks_nothing() -> None:
    laws = (KNOWN.law, "agrees-with-float64")
    assert check(laundering, laws=laws).held is False
    result = check(laundering, laws=laws, facts={"known_faults": (KNOWN,)})
    assert result.held is True
    assert [law.known for law in result.laws if law.known] == ["NaN becomes zero"]


def test_a_known_fault_that_is_gone_fails() -> None:
    result = check(repeated, laws=(KNOWN.law,), facts={"known_faults": (KNOWN,)})
    assert result.held is False
    assert "a known fault is gone, remove its entry" in result.failures[0].diagnosis.text


def test_a_refused_declared_dtype_contradicts_the_declaration() -> None:
    @declare(dtypes=("float32", "float16"))
    def single(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        if query.dtype != torch.float32:
            raise NotImplementedError("float32 only")
        return repeated(query, key, value)

    result = check(single, dtypes=None, laws=AGREES)
    assert [f.trouble.kind for f in result.failures] == ["declaration"]
    assert "declared dtype float16" in result.failures[0].trouble.text


def test_the_same_seed_finds_the_same_cases() -> None:
    first, second, other = (check(repeated, seed=n, laws=AGREES) for n in (3, 3, 4))
    assert first.shares.kv_lens == second.shares.kv_lens
    assert first.shares.kv_lens != other.shares.kv_lens


def test_interruption_keeps_what_is_known() -> None:
    calls = 0

    def interrupted(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        if calls > 400:
            raise KeyboardInterrupt
        return repeated(query, key, value)

    result = check(interrupted, examples=400)
    assert result.interrupted
    assert sum(law.examples for law in result.laws) > 50


def test_a_law_that_broke_often_rests_and_the_others_go_on() -> None:
    def doubled(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return 2 * repeated(query, key, value)

    laws = ("agrees-with-float64", "inputs-are-not-modified")
    asked = Request(examples=100, dtypes=("float32",), laws=laws, shrink=False)
    agrees, untouched = check_target(LocalTarget.of(doubled, name="doubled"), asked).laws
    assert agrees.broken == BROKEN_ENOUGH
    assert untouched.held
    assert untouched.examples > 80


def test_ctrl_c_keeps_a_case_of_each_law_that_broke():
    def interrupt(progress: Progress) -> None:
        if progress.done == 15:
            raise KeyboardInterrupt

    facts = {"head_order": "interleaved"}
    target = LocalTarget.of(folded, name="folded", facts=facts)
    laws = ("agrees-with-float64", "causality")
    result = check_target(target, Request(dtypes=("float32",), laws=laws), interrupt)
    assert result.interrupted
    (failure,) = result.failures
    assert failure.law == "agrees-with-float64"
    assert failure.diagnosis.text.endswith("; interrupted before it was shrunk and named")
    assert failure.trouble.used is not None
    assert failure.trouble.used > 1
    assert [found.case for found in result.laws[0].counterexamples] == [failure.case]
