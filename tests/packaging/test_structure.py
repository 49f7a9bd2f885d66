"""Who imports whom: no circles, one direction, and nothing heavy before it is used."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = {"equivalence": ROOT / "equivalence", "equivalence.strategies": ROOT / "strategies",
           "equivalence.backends": ROOT / "backends"}  # fmt: skip
RUNTIMES = ("altair", "coreai", "coreai_torch", "coremltools", "distributed", "executorch", "jax",
            "matplotlib", "mlx", "onnx", "onnxruntime", "openvino", "pytest", "torch",
            "transformers", "triton")  # fmt: skip
# Written in a runtime: loaded when one of their functions is needed, and never before.
IN_TORCH = (
    "equivalence.audit.",
    "equivalence.backends",
    "equivalence.cli.audited",
    "equivalence.cli.auditing",
    "equivalence.converters.formulations.",
    "equivalence.converters.source",
    "equivalence.coreai.",
    "equivalence.coreml.chunks",
    "equivalence.coreml.converted",
    "equivalence.coreml.saved",
    "equivalence.mil.",
    "equivalence.passes.",
    "equivalence.quality.",
    "equivalence.saved.coreml",
    "equivalence.timing.traced",
)
BACKEND_LINES = 125
# What everything else stands on.
CORE = (
    "equivalence.arrays",
    "equivalence.bounds",
    "equivalence.case",
    "equivalence.compare",
    "equivalence.contract",
    "equivalence.declaration",
    "equivalence.domain",
    "equivalence.dtypes",
    "equivalence.errors",
    "equivalence.gradients",
    "equivalence.inputs",
    "equivalence.masks",
    "equivalence.memory",
    "equivalence.mixture",
    "equivalence.outcome",
    "equivalence.pasteable",
    "equivalence.profiles",
    "equivalence.reference",
    "equivalence.sizes",
    "equivalence.verdict",
)
DOORS = ("equivalence.__main__", "equivalence.cli", "equivalence.testing", "equivalence.plugin")


@cache
def modules() -> dict[str, Path]:
    """Every module of the three folders, by the name that it imports under."""
    found = {}
    for package, folder in FOLDERS.items():
        for path in folder.rglob("*.py"):
            parts = path.relative_to(folder).with_suffix("").parts
            name = ".".join((package, *parts)).removesuffix(".__init__")
            if "data" in parts:  # scripts, run in processes of their own
                continue
            if package != "equivalence" or parts[0] not in ("strategies", "backends"):
                found[name] = path
    return found


def imported(name: str) -> Iterator[str]:
    """The modules of this package that ``name`` imports, at its top or in its functions."""
    for node in _statements(ast.parse(modules()[name].read_text("utf-8")).body):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules())
        elif isinstance(node, ast.ImportFrom) and node.module in modules():
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in modules() else str(node.module)


def _statements(body: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """All statements below, except what stands under ``if TYPE_CHECKING:``."""
    for node in body:
        yield node
        typing = isinstance(node, ast.If) and isinstance(node.test, ast.Name)
        typing = typing and node.test.id == "TYPE_CHECKING"
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            if not (typing and part == "body") and isinstance(
                inner := getattr(node, part, 0), list
            ):
                yield from _statements(inner)


@cache
def graph() -> dict[str, frozenset[str]]:
    return {name: frozenset(imported(name)) - {name} for name in modules()}


def within(name: str, *packages: str) -> bool:
    return any(name == p.rstrip(".") or name.startswith(f"{p.rstrip('.')}.") for p in packages)


def test_the_graph_is_read():
    assert "equivalence.reference" in graph()["equivalence.subject"]
    assert "equivalence.strategies.attention" in graph()["equivalence.kinds.attention"]
    assert "equivalence.errors" in graph()["equivalence.registry"]


def test_there_are_no_circles():
    left = {name: set(others) for name, others in graph().items()}
    while free := [name for name, others in left.items() if not others]:
        for name in free:
            del left[name]
        for others in left.values():
            others.difference_update(free)
    # What is left imports something that is left: the circles, and whoever depends on them.
    assert sorted(left) == []


@pytest.mark.parametrize("name", CORE)
def test_the_core_stands_on_itself(name):
    assert sorted(graph()[name] - set(CORE)) == []


@pytest.mark.parametrize("folder", ["strategies", "backends"])
def test_only_the_joints_reach_a_folder(folder):
    package = f"equivalence.{folder}"
    joints = {
        "strategies": ("equivalence.kinds.", "equivalence.tolerances.drawing", package),
        "backends": ("equivalence.registry", package),
    }[folder]
    reach = {
        name
        for name, others in graph().items()
        if any(within(other, package) for other in others) and not within(name, *joints)
    }
    assert sorted(reach) == []


@pytest.mark.parametrize("folder", ["strategies", "backends"])
def test_a_folder_reaches_neither_the_other_nor_what_judges(folder):
    other = {"strategies": "backends", "backends": "strategies"}[folder]
    judges = ("equivalence.laws", "equivalence.engine", "equivalence.search", "equivalence.subject",
              "equivalence.kinds", "equivalence.diagnosis", "equivalence.probes",
              "equivalence.report", f"equivalence.{other}", *DOORS)  # fmt: skip
    wrong = {
        (name, reached)
        for name, others in graph().items()
        if within(name, f"equivalence.{folder}")
        for reached in others
        if within(reached, *judges)
    }
    assert sorted(wrong) == []


def test_a_backend_is_read_at_one_sitting():
    """One runtime, or one way of asking it, in a file: what it shares has a file of its own."""
    lines = {path.name: len(path.read_text("utf-8").splitlines())
             for path in FOLDERS["equivalence.backends"].glob("*.py")}  # fmt: skip
    assert len(lines) > 50
    assert {name: count for name, count in lines.items() if count > BACKEND_LINES} == {}


def test_nothing_imports_a_door():
    wrong = {
        (name, reached)
        for name, others in graph().items()
        if not within(name, *DOORS)
        for reached in others
        if within(reached, *DOORS)
    }
    assert sorted(wrong) == []


def test_importing_any_module_loads_no_runtime():
    light = sorted(name for name in modules() if not within(name, *IN_TORCH))
    program = (
        f"import importlib, sys\nfor name in {light!r}:\n"
        "    importlib.import_module(name)\n"
        f"    heavy = sorted(set(sys.modules) & set({RUNTIMES!r}))\n"
        "    assert not heavy, f'import {name} loads {heavy}'\n"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        # What other packages hang onto Hypothesis is not ours: trio's plugin imports pytest.
        env={**os.environ, "HYPOTHESIS_NO_PLUGINS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr[-2000:]


def test_the_core_loads_no_hypothesis():
    program = f"import sys, {', '.join(CORE)}\nassert 'hypothesis' not in sys.modules"
    finished = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr[-2000:]
