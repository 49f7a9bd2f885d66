"""MLX's rotary embedding keeps every law in its own pairing, and not in the other one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from equivalence.engine import check_target
from equivalence.kinds import kind_named
from equivalence.request import Request
from equivalence.results import TargetResult
from equivalence.rope.case import RotaryCase

from .judging import loaded

PAIRINGS = {"mlx.rope_half": "half", "mlx.rope_interleaved": "interleaved"}


@pytest.mark.parametrize("name", PAIRINGS)
def test_every_law_holds(name: str, count_checks: Callable[[TargetResult], None]) -> None:
    result = check_target(loaded(name), Request(dtypes=("float32", "float16"), examples=6))
    assert [(f.law, f.case, f.trouble.text) for f in result.failures] == []
    assert result.held is True
    assert result.shares.checks > 50
    count_checks(result)


@pytest.mark.parametrize("name", PAIRINGS)
def test_the_other_pairing_would_be_seen(name: str) -> None:
    subject = kind_named("rotary").subject(loaded(name), None)
    case = RotaryCase(seq_len=4, head_dim=8, start=5, pairing=PAIRINGS[name], values="normal")
    inputs = subject.inputs(case)
    outcome = subject.call(inputs)
    assert subject.judge(inputs, outcome).status == "held"
    (other,) = {"half", "interleaved"} - {case.pairing}
    assert subject.judge(subject.inputs(case.but(pairing=other)), outcome).status == "broken"
