"""Each example runs by its one command, finds what it is about, and passes once that is mended."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def run(*words: str, folder: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **settings}
    return subprocess.run(
        words, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, check=False,
    )  # fmt: skip


def check(target: str, *options: str, **settings: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "equivalence", "check", f"examples/{target}", *options]
    return run(*command, folder=ROOT, **settings)


def test_every_example_is_known_here():
    known = {"tiled_heads.py", "triton_decode.py", "converter_pass.py", "foreign_repo",
             "error_against_context.py", "ci"}  # fmt: skip
    assert {path.name for path in EXAMPLES.iterdir() if path.name != "__pycache__"} == known


@pytest.mark.slow
def test_error_against_context_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    script = str(EXAMPLES / "error_against_context.py")
    finished = run(sys.executable, script, "--longest", "16", "--seeds", "1", folder=tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert "<svg" in (tmp_path / "error_against_context.svg").read_text("utf-8")
    used = [float(one) for one in re.findall(r"used (\S+)", finished.stdout)]
    assert len(used) == 12
    assert all(0 <= one <= 1 for one in used)


@pytest.mark.slow
def test_the_triton_kernel_loses_the_last_key_of_a_full_block():
    pytest.importorskip("triton")
    wrong = check("triton_decode.py:attention", "--examples", "15", TRITON_INTERPRET="1")
    assert wrong.returncode == 1, wrong.stdout + wrong.stderr
    assert "the last key does not count" in wrong.stdout
    assert "AttentionCase(kv_len=16, " in wrong.stdout
    right = check("triton_decode.py:mended", "--examples", "15", TRITON_INTERPRET="1")
    assert right.returncode == 0, right.stdout + right.stderr


@pytest.mark.slow
def test_the_careless_pass_is_caught_and_the_careful_one_holds():
    wrong = check("converter_pass.py:careless", "--examples", "25")
    assert wrong.returncode == 1, wrong.stdout + wrong.stderr
    assert "cause     scale:" in wrong.stdout
    right = check("converter_pass.py:careful", "--examples", "25")
    assert right.returncode == 0, right.stdout + right.stderr


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """The foreign repository, and a command called equivalence that is this checkout's."""
    shutil.copytree(EXAMPLES / "foreign_repo", tmp_path / "repo")
    command = tmp_path / "bin" / "equivalence"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m equivalence "$@"\n')
    command.chmod(0o755)
    return tmp_path / "repo"


def gate(repository: Path) -> subprocess.CompletedProcess[str]:
    path = f"{repository.parent / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return run("./gate.sh", folder=repository, PATH=path)


@pytest.mark.slow
def test_the_foreign_repository_gates_its_kernel(repository):
    held = gate(repository)
    assert held.returncode == 0, held.stdout + held.stderr
    kernels = repository / "acme" / "kernels.py"
    text = kernels.read_text("utf-8")
    kernels.write_text(text.replace("repeat_interleave(group, 1)", "repeat(1, group, 1, 1)"))
    caught = gate(repository)
    assert caught.returncode == 1, caught.stdout + caught.stderr
    assert "looser: acme.kernels:attention" in caught.stdout
    tests = run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
                "-k", "agrees-with-float64", folder=repository,
                PYTHONPATH=f"{repository}{os.pathsep}{ROOT}")  # fmt: skip
    assert tests.returncode == 1
    assert "head-mapping" in tests.stdout
