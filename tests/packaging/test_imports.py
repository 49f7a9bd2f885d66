"""Importing is light, and each folder imports under one name only."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = [
    "altair",
    "coreai",
    "coremltools",
    "distributed",
    "executorch",
    "hypothesis",
    "jax",
    "matplotlib",
    "mlx",
    "onnx",
    "onnxruntime",
    "openvino",
    "torch",
    "transformers",
    "triton",
]


def run_in_root(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("module", ["equivalence", "equivalence.plugin", "equivalence.cli"])
def test_importing_loads_nothing_heavy(module: str) -> None:
    finished = run_in_root(
        f"import sys, {module}\nprint(*sorted(set(sys.modules) & set({HEAVY!r})))"
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.split() == [], f"import {module} loads what should load at use"


@pytest.mark.parametrize("folder", ["strategies", "backends"])
def test_folder_refuses_its_bare_name(folder: str) -> None:
    finished = run_in_root(f"import {folder}")
    assert finished.returncode == 1
    assert finished.stderr.splitlines()[-1] == (
        f"ImportError: this folder is the package equivalence.{folder} and was imported as "
        f"{folder}: write `import equivalence.{folder}` or `from equivalence import {folder}`"
    )


@pytest.mark.parametrize("folder", ["strategies", "backends"])
def test_folder_imports_inside_equivalence(folder: str) -> None:
    finished = run_in_root(f"from equivalence import {folder}; print({folder}.__name__)")
    assert (finished.returncode, finished.stdout) == (0, f"equivalence.{folder}\n"), finished.stderr
