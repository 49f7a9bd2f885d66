"""A few plain cases of one backend, judged against float64 attention under its own profile."""

from __future__ import annotations

import atexit
from collections.abc import Iterable
from functools import cache
from typing import Any

import pytest

from benchmarks.plain_cases import plain_case, refusal
from equivalence import registry
from equivalence.bounds import allowance
from equivalence.case import AttentionCase
from equivalence.compare import Comparison, compare
from equivalence.inputs import attention_inputs
from equivalence.isolation.opening import open_target
from equivalence.profiles import profile_for
from equivalence.reference import attention


@cache
def loaded(name: str) -> Any:
    """The backend, where it runs by default; skips, with the reason, where it cannot run."""
    usable = registry.entries()[name].available()
    if usable is not True:
        pytest.skip(str(usable))
    target = open_target(name)
    atexit.register(target.close)
    return target


def plain_cases(target: Any, dtype: str, count: int) -> list[AttentionCase]:
    """The first ``count`` plain cases that the target takes, without its known faults."""
    found: list[AttentionCase] = []
    for seed in range(70_000, 72_000):
        case = plain_case(seed, dtype)
        faults = target.declaration.known_faults
        law = "agrees-with-float64"
        known = any(f.law == law and f.explains(law, f.trouble, case) for f in faults)
        if refusal(target, case) is None and not known:
            found.append(case)
        if len(found) == count:
            break
    return found


def judged(target: Any, case: AttentionCase) -> Comparison:
    """The facts of one call; fails where no output of the right dtype came back."""
    inputs, exact = attention_inputs(case), attention(attention_inputs(case))
    outcome = target.call(inputs)
    assert outcome.status == "returned", (outcome.text, case)
    assert outcome.dtype == case.dtype
    assert outcome.mutated == ()
    bound = allowance(inputs, exact, profile_for(case.dtype, target.declaration.profile))
    return compare(outcome.output, exact.output, bound, dtype=case.dtype, rows=exact.seen > 0)


def all_pass(target: Any, cases: Iterable[AttentionCase]) -> bool:
    """Whether every case is within its bound."""
    return all(judged(target, case).passes for case in cases)
