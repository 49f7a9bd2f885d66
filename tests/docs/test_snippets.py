"""Every command and every piece of Python in README, CONTRIBUTING and docs/ works.

By default each command line is read by the real command, the Python runs, and so do the commands
that take no time. Marked slow, a page is followed from its first block to its last.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

import pytest

from equivalence.cli import run as run_here
from equivalence.cli.app import command_line
from tests.docs.snippets import ROOT, Block, arguments, blocks, pages
from tests.docs.workplace import furnish, run

QUICK = ("kvspec", "laws")
# Written by a command that takes minutes, with every runtime; its own tests run it on a few.
ELSEWHERE = ("docs/disagreements.md",)
PAGES = {path.relative_to(ROOT).as_posix(): path for path in pages()}
ALL = [block for path in PAGES.values() for block in blocks(path)]
COMMANDS = [
    pytest.param(command, id=f"{block.page}:{block.line}:{number}")
    for block in ALL
    for number, command in enumerate(block.commands())
    if arguments(command)[1][0] == "equivalence"
]
NOT_HERE = {"file", "not run", "example"}
PYTHON = {
    page: [
        one
        for one in ALL
        if one.page == page and one.language == "python" and not NOT_HERE & set(one.notes)
    ]
    for page in PAGES
}


def test_the_blocks_are_found():
    assert len(COMMANDS) > 60
    assert sum(len(found) for found in PYTHON.values()) > 6


@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_is_one(command):
    _, words = arguments(command)
    parsed = command_line()(words[1:], prog_name="equivalence", standalone_mode=False)
    assert callable(parsed), f"`{command}` is not understood"


@pytest.mark.parametrize("page", [page for page, found in PYTHON.items() if found])
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "page"}
    for block in PYTHON[page]:
        if "json" in block.text and "open(" in block.text:
            continue  # it reads what a command of the page has written
        exec(compile(block.text, f"{page}:{block.line}", "exec"), namespace)


@pytest.mark.parametrize("page", list(PAGES))
def test_quick_commands_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for block in blocks(PAGES[page]):
        for command in block.commands():
            words = arguments(command)[1]
            if words[0] == "equivalence" and words[1] in QUICK and "not run" not in block.notes:
                furnish(tmp_path, command)
                assert run_here(words[1:]) == 0, command
    capsys.readouterr()


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("page", [page for page in PAGES if page not in ELSEWHERE])
def test_a_page_can_be_followed(page, tmp_path):
    python: list[str] = []
    for block in blocks(PAGES[page]):
        if "file" in block.notes:
            (tmp_path / block.notes["file"]).write_text(block.text, encoding="utf-8")
        elif "not run" in block.notes or "example" in block.notes or "command" in block.notes:
            continue
        elif block.language == "python":
            python.append(block.text)
            (tmp_path / "page_so_far.py").write_text("\n".join(python), encoding="utf-8")
            finished = run(tmp_path, "python page_so_far.py")
            assert finished.returncode == 0, finished.stderr[-2000:]
        else:
            follow(block, tmp_path)


def follow(block: Block, folder: Path) -> None:
    """Run the commands of a block, and hold them to the exit code that it says."""
    wanted, more = 0, ""
    for option in block.options:
        if option.startswith("needs ") and not there(option.removeprefix("needs ")):
            return
        if option.startswith("exit "):
            wanted = int(option.removeprefix("exit "))
        if option.startswith("with "):
            more = option.removeprefix("with ")
    for command in block.commands():
        furnish(folder, command)
        finished = run(folder, f"{command} {more}")
        told = f"`{command} {more}` ends in {finished.returncode}\n{finished.stdout[-1500:]}"
        if "any exit" in block.options:
            assert finished.returncode in (0, 1, 3), told + finished.stderr[-1500:]
        else:
            assert finished.returncode == wanted, told + finished.stderr[-1500:]


def there(name: str) -> bool:
    """Whether a program or a module of that name can be used here."""
    return shutil.which(name) is not None or importlib.util.find_spec(name) is not None


def test_what_is_not_run_says_why():
    reasons = [block.notes["not run"] for block in ALL if "not run" in block.notes]
    assert all(len(reason) > 8 for reason in reasons)
    assert len(reasons) <= 20
    assert os.linesep not in "".join(reasons)
