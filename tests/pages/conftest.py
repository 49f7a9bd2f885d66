"""Reports to show, made by hand and by chance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st

from equivalence.report.json import strict
from equivalence.report.schema import (
    CounterexampleJson,
    DiagnosisJson,
    DtypeJson,
    FailureJson,
    LawJson,
    PairJson,
    ReportJson,
    TargetJson,
)
from equivalence.timing.results import Estimate, Floor, Row, TimingRun
from tests.commands import Run, here

HOSTILE = (
    """<script>alert(1)</script>'"></td><img src=x onerror=alert(2)>"""
    "{{ 7*7 }}&`|](javascript:alert(3))"
)
CASE = "AttentionCase(num_kv_heads=2, group_size=2)"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run the command in this process, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return here(capfd)


def shown(name: str, case: str = CASE, **facts: Any) -> CounterexampleJson:
    """A counterexample of a target of this name."""
    known: dict[str, Any] = {
        "index": [0, 1, 0, 0],
        "got": 2.0,
        "expected": 1.0,
        "used": 3.0,
        "text": "disagrees with float64 attention at output[0, 1, 0, 0]",
    }
    return CounterexampleJson(
        case=case, replay=f"equivalence replay {name} '{case}'", **{**known, **facts}
    )


def law(name: str, dtype: str = "float32", **facts: Any) -> LawJson:
    """A law that held, unless facts say otherwise."""
    row: dict[str, Any] = {"held": True, "examples": 100, "vacuous": 1, "refused": 2, "used": 0.5}
    row |= {key: value for key, value in facts.items() if key in row}
    rest = {key: value for key, value in facts.items() if key not in row}
    of_dtype = DtypeJson(
        dtype=dtype,
        histogram=[50, *[5] * 10, 0, 0, 0, 0, 0],
        worst=f"equivalence replay it 'AttentionCase(dtype=\"{dtype}\")'",
        **row,
    )
    return LawJson(name=name, dtypes=[of_dtype], **row, **rest)


def target(name: str, *laws: LawJson, **facts: Any) -> TargetJson:
    """A target."""
    known: dict[str, Any] = {
        "kind": "attention",
        "held": True,
        "profile": "flash",
        "tolerance": {},
        "not_exercised": {"softcap": "it takes no option of that name"},
        "timings": {},
    }
    own = list(laws) or [law("causality"), law("agrees-with-float64", "bfloat16", used=0.97)]
    return TargetJson(target=name, laws=own, **{**known, **facts})


def broken(name: str, text: str = "query head 1 reads kv head 1, expected 0") -> TargetJson:
    """A target with one fault."""
    found = shown(name)
    diagnosis = DiagnosisJson(kind="head-mapping", text=text)
    failure = FailureJson(
        law="agrees-with-float64", dtype="float32", counterexample=found, diagnosis=diagnosis
    )
    bad = law("agrees-with-float64", held=False, counterexample=found, diagnosis=diagnosis)
    return target(name, bad, law("causality"), held=False, failures=[failure])


def report(*targets: TargetJson, seed: int = 0, **facts: Any) -> ReportJson:
    """A report of a run."""
    environment = {"seed": seed, "examples": 100, "packages": {"hypothesis": "6.170"}}
    return ReportJson(schema=1, targets=list(targets), environment=environment, **facts)


def text(of: ReportJson) -> str:
    """The report as it stands in a file."""
    return strict(msgspec.to_builtins(of))


PAIR = PairJson(
    first="sound", second="kernels.py:tiled", held=False, compared=20, vacuous=0, equal=5, broken=3,
    used=7.5, counterexample=shown("sound"),
)  # fmt: skip


@pytest.fixture
def example() -> ReportJson:
    """A run with one of everything."""
    idle = target("idle", law("causality", held=None, examples=0, used=0.0, reasons={"no": 3}))
    return report(target("sound"), broken("kernels.py:tiled"), idle, pairs=[PAIR])


def timed(name: str) -> TimingRun:
    """A decode run of two formulations, one of which says something hostile."""
    rows = [
        Row(
            subject=subject,
            dtype="float32",
            sizes={"num_kv_heads": heads, "kv_len": 512},
            cache_bytes=2**17 * heads,
            flops=1,
            held=True,
            time=Estimate(
                clock="thread", minimum=seconds * heads, median=seconds, spread=0.0,
                wall_minimum=seconds, wall_median=seconds, rounds=9, loops=1, contended=False,
            ),
            floor=Floor(seconds=1e-6 * heads, where="cache"),
        )
        for subject, seconds in (("steady", 1e-3), (name, 2e-3))
        for heads in (1, 2, 8)
    ]  # fmt: skip
    return TimingRun(
        command="decode", when="today", threads=1, device="cpu", machine={}, bandwidth=None,
        rows=tuple(rows), reading=("keep the saving: steady",),
    )  # fmt: skip


counts = st.integers(0, 500)
sizes = st.floats(0, 2) | st.sampled_from(("NaN", "Infinity"))
names = st.sampled_from(("one", "two"))
rows = st.builds(
    DtypeJson,
    dtype=st.sampled_from(("float32", "bfloat16")),
    held=st.sampled_from((True, False, None)),
    examples=counts,
    vacuous=counts,
    refused=counts,
    used=sizes,
    histogram=st.lists(counts, max_size=16),
    worst=st.sampled_from(("", "replay a", "replay b", "replay longer")),
)
laws = st.builds(
    LawJson,
    name=st.sampled_from(("causality", "within-hull")),
    held=st.sampled_from((True, False, None)),
    examples=counts,
    vacuous=counts,
    refused=counts,
    used=sizes,
    known=st.sampled_from(("", "a known fault")),
    dtypes=st.lists(rows, max_size=2),
)
failures = st.builds(
    FailureJson,
    law=st.sampled_from(("causality", "within-hull")),
    dtype=st.sampled_from(("float32", "")),
    counterexample=st.builds(shown, names, st.sampled_from(("A()", "B()", "Longer()"))),
    diagnosis=st.builds(
        DiagnosisJson, kind=st.sampled_from(("scale", "unknown")), text=st.sampled_from("ab")
    ),
)
reports = st.builds(
    lambda targets, pairs, seed: report(*targets, pairs=pairs, seed=seed),
    st.lists(
        st.builds(
            lambda name, laws, failures, timings: target(
                name, *laws, failures=failures, timings=timings
            ),
            names,
            st.lists(laws, min_size=1, max_size=2),
            st.lists(failures, max_size=2),
            st.dictionaries(st.sampled_from("ab"), sizes, max_size=2),
        ),
        max_size=2,
    ),
    st.lists(
        st.builds(
            PairJson,
            first=names,
            second=names,
            held=st.sampled_from((True, False, None)),
            compared=counts,
            vacuous=counts,
            equal=counts,
            broken=counts,
            used=sizes,
        ),
        max_size=2,
    ),
    st.integers(0, 1),
)
