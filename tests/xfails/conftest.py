"""A folder with a kernel that breaks two laws, and the command in it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import Run, here

KERNELS = '''
"""Interleaved heads, which breaks agreement and more."""

import equivalence
import torch

sdpa = torch.nn.functional.scaled_dot_product_attention


@equivalence.attention(dtypes=("float32",))
def interleaved(query, key, value):
    group = query.shape[1] // key.shape[1]
    return sdpa(query, key.repeat(1, group, 1, 1), value.repeat(1, group, 1, 1))


@equivalence.attention(dtypes=("float32",))
def right(query, key, value):
    return sdpa(query, key, value, enable_gqa=True)
'''
TESTS = """
import equivalence
from kernels import interleaved, right

LAWS = ["agrees-with-float64", "within-hull"]
test_interleaved = equivalence.conformance(interleaved, laws=LAWS, examples=8)
test_right = equivalence.conformance(right, laws=LAWS, examples=8)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory."""
    (tmp_path / "kernels.py").write_text(KERNELS)
    (tmp_path / "test_kernels.py").write_text(TESTS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(folder: Path, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run the command in this process."""
    return here(capfd)


@pytest.fixture
def tests(folder: Path) -> Callable[[], str]:
    """Run the tests of the folder in a process of their own; returns its output."""

    def run() -> str:
        command = (sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider")
        finished = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        return finished.stdout + finished.stderr

    return run
