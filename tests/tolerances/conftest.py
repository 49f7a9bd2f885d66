"""A table of tolerances, and the command in a folder with kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

from equivalence.tolerances.table import Entry, Tolerances
from tests.commands import Run, here

KERNELS = '''
"""One kernel that is right in its own way, and one that becomes worse when a file is there."""

import os

import equivalence
import torch


def is_small(case):  # hundreds of cases, of which none need be large
    return max(case.q_len, case.kv_len) <= 16 or "long"


facts = dict(dtypes=("float32",), head_dims=(4,), supports=is_small)


@equivalence.attention(**facts)
def right(query, key, value):
    group = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    scores = query @ key.mT * query.shape[-1] ** -0.5
    if os.path.exists("worse"):
        scores = scores * (1 + 2.0**-23)
    return scores.softmax(-1) @ value


@equivalence.attention(**facts)
def wrong(query, key, value):
    return right(query, key, value) * 1.001


@equivalence.attention(**facts)
def refuses(query, key, value):
    raise NotImplementedError("not today")
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with kernels.py in it."""
    (tmp_path / "kernels.py").write_text(KERNELS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(folder: Path, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run `equivalence tolerances` in this process."""
    return here(capfd, "tolerances")


def entry(**changes: object) -> Entry:
    """An entry, with changes."""
    facts = {
        "kind": "attention",
        "profile": "flash",
        "law": "agrees-with-float64",
        "used": 0.5,
        "worst": "equivalence replay some.thing 'AttentionCase()'",
        "k": 2.0,
        "atol": 1e-3,
        "rtol": 1e-3,
    }
    return Entry(**{**facts, **changes})  # type: ignore[arg-type]


def table(tolerance: dict[str, dict[str, Entry]], **changes: object) -> Tolerances:
    """A table with these entries."""
    facts = {
        "schema": 1,
        "cases": 299,
        "seed": 0,
        "search": 0,
        "covers": 0.99,
        "confidence": 0.95,
        "environment": {"python": "3.11", "packages": {"torch": "2.9"}},
        "tolerance": tolerance,
    }
    return Tolerances(**{**facts, **changes})  # type: ignore[arg-type]
