"""Reports made by hand or drawn, and the command in a folder with kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st

from equivalence.gate.findings import Findings, findings_of
from equivalence.report.json import strict
from equivalence.report.schema import DtypeJson, LawJson, PairJson, ReportJson, TargetJson
from tests.commands import Run, here

KERNELS = '''
"""A kernel that is right, until a file says otherwise."""

import os

import equivalence
import torch

sdpa = torch.nn.functional.scaled_dot_product_attention


@equivalence.attention(dtypes=("float32",))
def kernel(query, key, value):
    if os.path.exists("broken"):
        value = value * 1.01
    if os.path.exists("refuses") and query.shape[1] != key.shape[1]:
        raise NotImplementedError("equal heads only")
    return sdpa(query, key, value, enable_gqa=True)
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory."""
    (tmp_path / "kernels.py").write_text(KERNELS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(folder: Path, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run the command in this process."""
    return here(capfd)


def law(name: str = "causality", dtype: str = "float32", **facts: Any) -> LawJson:
    """A law in one dtype, held unless facts say otherwise."""
    row = {"held": True, "examples": 100, "vacuous": 0, "refused": 0, "used": 0.5}
    row |= {key: value for key, value in facts.items() if key in row}
    rest = {key: value for key, value in facts.items() if key not in row}
    return LawJson(name=name, dtypes=[DtypeJson(dtype=dtype, **row)], **row, **rest)


def target(name: str = "it", *laws: LawJson, **facts: Any) -> TargetJson:
    """A target with these laws (one that holds, if none are given)."""
    known: dict[str, Any] = {
        "kind": "attention",
        "held": True,
        "profile": "flash",
        "tolerance": {},
        "not_exercised": {},
        "timings": {},
    }
    return TargetJson(target=name, laws=list(laws) or [law()], **{**known, **facts})


def report(*targets: TargetJson, seed: int = 0, examples: int = 120, **facts: Any) -> ReportJson:
    """A report of a run."""
    environment = {"seed": seed, "examples": examples, "packages": {"hypothesis": "6.170"}}
    environment |= facts.pop("environment", {})
    return ReportJson(schema=1, targets=list(targets), environment=environment, **facts)


def found(*targets: TargetJson, **facts: Any) -> Findings:
    """The findings of one report."""
    return findings_of(report(*targets, **facts))


def text(report: ReportJson) -> str:
    """The report as it stands in a file."""
    return strict(msgspec.to_builtins(report))


counts = st.integers(0, 500)
sizes = st.floats(0, 1e9) | st.sampled_from(("NaN", "Infinity"))
names = st.sampled_from(("one", "two", "three"))
rows = st.builds(
    law,
    st.sampled_from(("causality", "within-hull")),
    st.sampled_from(("float32", "bfloat16")),
    held=st.sampled_from((True, False, None)),
    examples=counts,
    vacuous=counts,
    refused=counts,
    used=sizes,
)
features = st.dictionaries(st.sampled_from(("softcap", "sinks")), st.text(max_size=3))
numbers = st.dictionaries(st.sampled_from(("operations", "bytes")), sizes)
targets = st.builds(
    lambda name, laws, **facts: target(name, *laws, **facts),
    names,
    st.lists(rows, min_size=1, max_size=3),
    profile=st.sampled_from(("f32", "flash", "eager", "graph")),
    not_exercised=features,
    graph=numbers,
    allocation=numbers,
)
pairs = st.builds(
    PairJson,
    first=names,
    second=names,
    held=st.sampled_from((True, False, None)),
    compared=counts,
    vacuous=counts,
    equal=counts,
    broken=counts,
    used=sizes,
)
reports = st.builds(
    lambda targets, **facts: report(*targets, **facts),
    st.lists(targets, max_size=3),
    seed=st.integers(0, 2),
    pairs=st.lists(pairs, max_size=2),
    environment=st.fixed_dictionaries({}, optional={"unavailable": features}),
)
