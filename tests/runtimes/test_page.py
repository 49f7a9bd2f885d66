"""The page on what is exercised names backends and tests that are there, and every runtime."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from equivalence.registry import OURS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "runtimes.md").read_text("utf-8")
ROWS = [line.split("|")[1:4] for line in PAGE.splitlines() if line.startswith("| ")]
TESTS = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))


@pytest.mark.parametrize(("file", "name"), TESTS)
def test_each_test_is_there(file: str, name: str) -> None:
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_backend_of_another_runtime_is_on_it() -> None:
    named = {name for row in ROWS for name in re.findall(r"`([\w.]+)`", row[1])}
    others = {b.name for b in OURS if b.requires and "coremltools" not in b.requires
              and b.kind != "kv_cache" and "coreai" not in b.requires
              and not b.name.startswith("rotary.transformers")}  # fmt: skip
    assert named - {b.name for b in OURS} == set()
    assert others - named == set()
