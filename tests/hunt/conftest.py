"""Kernels whose faults show only where two options meet, or late, and the command."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import Run, here

COMMAND = (sys.executable, "-c", "from equivalence.cli import main; main()")
KERNELS = '''
"""Kernels, one right and one wrong."""

import equivalence
import torch

sdpa = torch.nn.functional.scaled_dot_product_attention


@equivalence.attention(dtypes=("float32",))
def right(query, key, value):
    return sdpa(query, key, value, enable_gqa=True)


@equivalence.attention(dtypes=("float32",))
def interleaved(query, key, value):
    group = query.shape[1] // key.shape[1]
    return sdpa(query, key.repeat(1, group, 1, 1), value.repeat(1, group, 1, 1))


calls = 0


@equivalence.attention(dtypes=("float32",))
def slow(query, key, value):
    global calls
    calls += 1
    if calls == 800:  # its features have been tried, and some cases judged
        open("searching", "w").close()
    return right(query, key, value)
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with kernels.py in it."""
    (tmp_path / "kernels.py").write_text(KERNELS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(folder: Path, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run the command in this process."""
    return here(capfd)


@pytest.fixture
def start(folder: Path) -> Callable[..., subprocess.Popen[str]]:
    """Start the command in a process of its own."""

    def start(*arguments: str, **options: object) -> subprocess.Popen[str]:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [*COMMAND, *arguments]
        return subprocess.Popen(command, cwd=folder, env=environment, text=True, **pipes)  # type: ignore[call-overload, no-any-return]

    return start
