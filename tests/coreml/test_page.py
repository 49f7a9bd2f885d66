"""The page on what is exercised names tests, commands and backends that are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from equivalence.cli.app import command_line
from equivalence.registry import OURS
from tests.docs.snippets import arguments

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "coreml-exercised.md").read_text("utf-8")
ROWS = [line.split("|")[1:4] for line in PAGE.splitlines() if line.startswith("| ")]
TESTS = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))
COMMANDS = sorted({text for row in ROWS for text in re.findall(r"`(equivalence [^`]+)`", row[1])})


@pytest.mark.parametrize(("file", "name"), TESTS)
def test_each_test_is_there(file: str, name: str) -> None:
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_is_one(command: str) -> None:
    _, words = arguments(command)
    assert callable(command_line()(words[1:], prog_name="equivalence", standalone_mode=False))


def test_each_row_names_a_test_and_every_backend_is_on_it() -> None:
    for what, _, tests in ROWS:
        assert what.strip() in ("what", "") or "`tests/" in tests, what
    named = {word for command in COMMANDS for word in command.split() if word.startswith("core")}
    ours = {one.name for one in OURS if one.name.startswith(("coreml.", "coreai."))}
    assert named == ours


def test_every_test_file_of_core_ml_and_its_kin_is_on_it() -> None:
    """Whatever holds something of a converted graph is named at least once."""
    folders = ("coreml", "coreai", "mil", "passes")
    files = {p.relative_to(ROOT).as_posix() for f in folders
             for p in (ROOT / "tests" / f).glob("test_*.py")}  # fmt: skip
    assert files - {file for file, _ in TESTS} == {"tests/coreml/test_page.py"}
