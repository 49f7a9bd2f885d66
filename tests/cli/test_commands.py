"""The smaller commands, and the help."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from syrupy.assertion import SnapshotAssertion

from equivalence.laws import all_laws
from equivalence.registry import entries
from tests.commands import Run

HEAVY = ["torch", "hypothesis", "numpy", "coremltools", "rich", "jinja2", "msgspec"]


@pytest.mark.parametrize(
    "command",
    [(), ("check",), ("compare",), ("replay",), ("probe",), ("laws",), ("backends",)],
    ids=" ".join,
)
def test_help(
    command: tuple[str, ...],
    run: Run,
    snapshot: SnapshotAssertion,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    finished = run(*command, "--help")
    assert (finished.code, finished.err) == (0, "")
    assert max(map(len, finished.out.splitlines())) <= 80
    assert finished.out == snapshot


def test_the_package_runs_as_the_command() -> None:
    command = [sys.executable, "-m", "equivalence", "--version"]
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    assert re.fullmatch(r"\d{4}\.\d+\.\d+\n", finished.stdout)


def test_help_and_refusals_import_nothing_heavy() -> None:
    asked = [["--version"], ["--help"], ["check", "--help"], ["check", "--examples", "-1"]]
    program = (
        f"import sys\nfrom equivalence.cli import run\nfor arguments in {asked!r}:\n"
        "    run(arguments)\n"
        f"    print('loaded by', arguments, sorted(set(sys.modules) & set({HEAVY!r})))"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    told = [line for line in finished.stdout.splitlines() if line.startswith("loaded by")]
    assert told == [f"loaded by {arguments} []" for arguments in asked]


def test_laws_are_listed_with_their_sentences(run: Run) -> None:
    finished = run("laws")
    assert finished.code == 0
    for law in all_laws("attention"):
        assert f"{law.name}\n    {law.sentence}\n" in finished.out


def test_backends_are_listed_with_what_is_missing(run: Run) -> None:
    finished = run("backends", "--brief")
    assert finished.code == 0
    listed = [line.split()[0] for line in finished.out.splitlines()[1:]]
    assert listed == list(entries())
    refused = run("backends", "--brief", "--json", "x.json")
    assert refused.code == 2
    assert "--brief goes to the terminal only, and not to --json" in refused.err


def test_probe_says_what_a_kernel_does(run: Run) -> None:
    finished = run("probe", "kernels.py:interleaved", "--dtype", "float32", "--json", "card.json")
    assert finished.code == 0
    assert "interleaved heads" in finished.out
    with open("card.json") as file:
        card = json.load(file)
    assert card["cards"][0]["heads"]["value_side"][:4] == [0, 1, 0, 1]


def test_probe_of_a_kernel_that_refuses(run: Run) -> None:
    finished = run("probe", "kernels.py:refuses")
    assert finished.code == 1
    assert "was not exercised: every tiny case was refused" in finished.out


def test_replay_shows_the_failure_and_its_numbers(run: Run, snapshot: SnapshotAssertion) -> None:
    case = "AttentionCase(num_kv_heads=2, group_size=2)"
    finished = run("replay", "kernels.py:interleaved", case, "--law", "agrees-with-float64")
    assert finished.code == 1
    assert finished.out == snapshot


def test_replay_of_a_case_that_holds(run: Run) -> None:
    finished = run("replay", "kernels.py:right", "AttentionCase(kv_len=3, values='normal')")
    assert finished.code == 0
    assert finished.out.startswith("kernels.py:right holds: ")


def test_replay_of_a_crash(run: Run) -> None:
    finished = run("replay", "kernels.py:aborts", "AttentionCase(kv_len=40)")
    assert finished.code == 3
    assert "Crash: kernels.py:aborts: killed by SIGABRT" in finished.out


def test_replay_of_a_large_case_gives_ranges(run: Run) -> None:
    finished = run("replay", "kernels.py:right", 'AttentionCase(kv_len=100, values="normal")',
                   "--law", "agrees-with-float64")  # fmt: skip
    assert finished.code == 0
    assert "  key       [1, 1, 100, 1]  from -" in finished.out
