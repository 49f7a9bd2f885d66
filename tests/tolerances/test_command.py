"""`equivalence tolerances` from its arguments to its exit code."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from equivalence import isolation
from tests.commands import Run

QUICK = ("kernels.py:right", "--search", "0")


def test_written_checked_and_drifted(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation, "inside_worker", True)  # a thousand calls, each to a worker
    finished = run(*QUICK, "--write", "table.toml")
    assert (finished.code, finished.err) == (0, "")
    assert "table.toml written" in finished.out
    text = (folder / "table.toml").read_text()
    (entry,) = tomllib.loads(text)["tolerance"]["kernels.py:right"].values()
    assert entry["worst"].startswith("equivalence replay kernels.py:right 'AttentionCase(")
    assert str(folder) not in text

    finished = run("--check", "table.toml")
    assert (finished.code, finished.out.splitlines()[-1]) == (0, "no drift in 1 entries")

    (folder / "worse").touch()
    finished = run("--check", "table.toml", "--json", "new.json")
    assert finished.code == 1
    assert "looser: kernels.py:right float32: uses " in finished.out
    assert json.loads((folder / "new.json").read_bytes())["cases"] == 299

    (folder / "kernels.py").unlink()
    finished = run("--check", "table.toml")
    assert finished.code == 1
    assert "looser: kernels.py:right float32: lost: " in finished.out


def test_a_broken_target_writes_nothing(run: Run, folder: Path) -> None:
    finished = run("kernels.py:wrong", "--search", "0", "--write", "table.toml")
    assert finished.code == 1
    assert "kernels.py:wrong float32 does not hold: " in finished.out
    assert not (folder / "table.toml").exists()


def test_nothing_measured_is_not_green(run: Run) -> None:
    finished = run("kernels.py:refuses", "--search", "0")
    assert finished.code == 1
    assert "nothing was measured" in finished.out
    assert "not today" in finished.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--cases", "298"), "--cases 298: the largest of n cases covers 99%"),
        (("--cases", "many"), "'many' is not a whole number"),
        (("--check", "table.toml"), "--check table.toml cannot be read: no such file"),
        (("--check", "a", "--write", "b"), "--write and --check exclude each other"),
        (("--check", "a", "--seed", "1"), "--check measures with the cases, the seed"),
        (("--write", "/dev/null/x"), "--write /dev/null/x"),
        (("--dtype", "float33"), "--dtype float33 is not one of"),
        (("no.such",), "'no.such' is not a registered name"),
    ],
)
def test_a_wrong_request_gets_one_line(run: Run, arguments: tuple[str, ...], said: str) -> None:
    finished = run(*arguments)
    assert finished.code == 2
    assert said in finished.err
    assert finished.err.count("\n") == 1
    assert finished.out == ""
