"""Core AI executes on Linux: formulations through its own runtime, in a worker process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("coreai")
pytest.importorskip("coreai_torch")

from equivalence.converters.case import ConverterCase
from equivalence.converters.subject import ConverterSubject
from equivalence.isolation.opening import open_target
from equivalence.isolation.supervise import Limits
from equivalence.outcome import Target

LIMITS = Limits(seconds=90.0)


@pytest.fixture(scope="module")
def runtime() -> Iterator[Target]:
    target = open_target("coreai.export", limits=LIMITS)
    yield target
    target.close()


@pytest.mark.parametrize(
    "case",
    [
        ConverterCase(
            formulation="sdpa_gqa", num_kv_heads=2, group_size=2, kv_len=5, head_dim=4,
            dtype="float16", shapes="range", example_len=3, values="normal",
        ),
        ConverterCase(
            formulation="cache_one_hot", num_kv_heads=2, group_size=2, kv_len=4, head_dim=4,
            dtype="float16", values="normal",
        ),
    ],
    ids=lambda case: case.formulation,
)  # fmt: skip
def test_formulations_agree_with_float64(runtime: Target, case: ConverterCase) -> None:
    subject = ConverterSubject(runtime, None)
    verdict = subject.judge(case, subject.outcome(case))
    assert verdict.status == "held", verdict


def test_it_runs_in_a_process_of_its_own(runtime: Target) -> None:
    assert type(runtime).__name__ == "IsolatedTarget"
    assert runtime.declaration.profile == "core_ai"


@pytest.mark.nightly
def test_an_indexed_write_aborts_the_worker_and_not_this_process() -> None:
    target = open_target("coreai.export", limits=LIMITS)
    case = ConverterCase(formulation="cache_indexed", kv_len=2, dtype="float16", values="normal")
    outcome = ConverterSubject(target, None).outcome(case)
    assert outcome.status == "died"
    target.close()
