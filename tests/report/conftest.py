"""Results to report on, made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from equivalence.case import AttentionCase
from equivalence.results import Diagnosis, Failure, RunResult, Shares, TargetResult
from equivalence.verdict import Counterexample, LawResult, Trouble

MINIMAL = AttentionCase(num_kv_heads=2, group_size=2, dtype="bfloat16")
REPLAY = (
    "equivalence replay torch.sdpa_gqa "
    "'AttentionCase(num_kv_heads=2, group_size=2, dtype=\"bfloat16\")'"
)


@pytest.fixture
def failure() -> Failure:
    """The example of the style guide."""
    return Failure(
        law="agrees-with-float64",
        dtype="bfloat16",
        case=MINIMAL,
        trouble=Trouble(
            kind="outside-bound",
            text="disagrees with float64 attention at output[0, 2, 0, 17]",
            index=(0, 2, 0, 17),
            got=0.4375,
            expected=0.43359,
            error=0.0039,
            allowed=0.0016,
            used=2.44,
            outside=41,
            total=192,
            where="all in query head 2",
            profile="flash",
        ),
        diagnosis=Diagnosis(
            kind="head-mapping",
            text=(
                "query head 2 reads kv head 0, expected 1; "
                "the map found is interleaved (h % num_kv_heads)"
            ),
        ),
        replay=REPLAY,
    )


def law(name: str, dtype: str = "float32", **facts: object) -> LawResult:
    result = LawResult(law=name, dtype=dtype, examples=100, used=0.25)
    for field, value in facts.items():
        setattr(result, field, value)
    return result


@pytest.fixture
def holds() -> TargetResult:
    """A target that holds, with one law that could not be judged."""
    return TargetResult(
        target="torch.repeat_kv",
        kind="attention",
        profile="eager",
        laws=[
            law("agrees-with-float64", used=0.8345, examples=1211, vacuous=12),
            law("agrees-with-float64", "bfloat16", used=0.5, examples=1000, refused=3),
            law("causality", used=0.0),
            law("log-sum-exp", examples=0, refused=40, reasons={"returns no log-sum-exp": 40}),
        ],
        not_exercised={"softcap": "TypeError: unexpected keyword 'softcap'"},
        remarks={"rows that see no key hold NaN": 12},
        card=["rows that see no key hold NaN"],
        shares=Shares(
            kv_lens=[1, 16, 40], cases=100, grouped=45, real_head_dim=12, checks=990, vacuous=10,
            refused=43,
        ),
        timings={"search": 1.25},
    )  # fmt: skip


@pytest.fixture
def broken(failure: Failure) -> TargetResult:
    """A target that breaks two laws through one fault."""
    found = Counterexample(case=failure.case, trouble=failure.trouble, replay=failure.replay)
    other = replace(found, trouble=replace(failure.trouble, kind="disagreement"))
    return TargetResult(
        target="torch.sdpa_gqa",
        kind="attention",
        profile="flash",
        laws=[
            law("agrees-with-float64", "bfloat16", used=2.44, counterexamples=[found]),
            law("causality", "bfloat16", counterexamples=[other]),
        ],
        failures=[failure],
        shares=Shares(kv_lens=[8], cases=1, checks=200),
    )


@pytest.fixture
def run(holds: TargetResult, broken: TargetResult) -> RunResult:
    """A run over both."""
    return RunResult(targets=[holds, broken], environment={"python": "3.11.9"}, seconds=2.5)
