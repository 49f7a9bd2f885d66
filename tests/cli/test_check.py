"""`equivalence check` from the command line to the exit code."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from equivalence.report.json import from_json
from equivalence.results import TargetResult
from tests.commands import Run

QUICK = ("--examples", "6", "--dtype", "float32")
SOME = ("--examples", "20", "--dtype", "float32")
AGREES = ("--law", "agrees-with-float64")


def test_a_right_kernel_holds(run: Run) -> None:
    finished = run("check", "kernels.py:right", *QUICK)
    assert (finished.code, finished.err) == (0, "")
    first = finished.out.splitlines()[0]
    assert re.fullmatch(
        r"kernels\.py:right holds: [\d,]+ checks of \d+ laws, worst \S+ of the bound .*", first
    )
    assert "median kv_len" in finished.out
    assert "not exercised: " in finished.out


def test_a_wrong_kernel_is_told_with_its_smallest_case(run: Run, folder: Path) -> None:
    arguments = ("--law", "agrees-with-float64", "--json", "report.json", "--script", "failing")
    finished = run("check", "kernels.py:interleaved", *SOME, *arguments)
    assert (finished.code, finished.err) == (1, "")
    lines = finished.out.splitlines()
    assert lines[0].startswith("kernels.py:interleaved does not hold: 1 fault (head-mapping) in ")
    assert "  case      AttentionCase(num_kv_heads=2, group_size=2)" in lines
    report = from_json((folder / "report.json").read_bytes())
    (law,) = report.targets[0].laws
    assert law.held is False
    assert law.counterexample is not None
    assert law.counterexample.case == "AttentionCase(num_kv_heads=2, group_size=2)"
    assert law.diagnosis is not None
    assert law.diagnosis.kind == "head-mapping"
    (script,) = (folder / "failing").iterdir()
    assert f"  script    failing/{script.name}" in lines
    assert [path.name for path in folder.glob(".*")] == []


def test_declared_facts_are_repeated_by_the_replay_line(run: Run) -> None:
    declared = ("--declare", "causal=lower_right", "--law", "agrees-with-float64")
    finished = run("check", "kernels.py:upper_left", *SOME, *declared)
    assert finished.code == 1
    assert "--declare causal=lower_right" in finished.out
    declared = ("--declare", "causal=upper_left", "--law", "agrees-with-float64")
    assert run("check", "kernels.py:upper_left", *SOME, *declared).code == 0


def test_a_crash_goes_before_a_broken_law(run: Run) -> None:
    finished = run("check", "kernels.py:interleaved", "kernels.py:aborts", *QUICK, *AGREES)
    assert finished.code == 3
    assert "Crash: kernels.py:aborts: killed by SIGABRT" in finished.out
    assert "kernels.py:interleaved does not hold" in finished.out


def test_nothing_exercised_is_not_green(run: Run) -> None:
    finished = run("check", "kernels.py:refuses", *QUICK)
    assert finished.code == 1
    assert "head_dim must be 12345" in finished.out.splitlines()[0]


def test_refusing_every_grouped_case_is_in_the_first_line(run: Run) -> None:
    finished = run("check", "kernels.py:equal_heads", *QUICK)
    assert "it refuses every grouped case" in finished.out.splitlines()[0]


def test_like_draws_the_heads_of_a_model(run: Run, folder: Path) -> None:
    config = {"num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 20}
    (folder / "config.json").write_text(json.dumps(config))
    finished = run("check", "kernels.py:right", *QUICK, "--like", "config.json")
    assert finished.code == 0
    assert "grouped 100%" in finished.out


def test_the_same_seed_finds_the_same(run: Run) -> None:
    arguments = ("check", "kernels.py:right", *QUICK, *AGREES, "--seed", "5")
    first = run(*arguments).out
    assert run(*arguments).out == first
    assert run(*arguments[:-1], "6").out != first


def test_json_to_stdout_is_all_that_stdout_gets(run: Run) -> None:
    asked = ("--examples", "3", "--dtype", "float32", *AGREES)
    finished = run("check", "kernels.py:chatty", "torch.sdpa", *asked, "--json", "-")
    assert finished.code == 0, finished.err
    report = from_json(finished.out)
    assert [target.target for target in report.targets] == ["kernels.py:chatty", "torch.sdpa"]
    assert report.environment["seed"] == 0
    assert "kernels.py:chatty holds: " in finished.err


def test_what_prints_in_this_process_is_kept_off_stdout_too(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from equivalence.engine import check_target

    def chatty(*arguments: Any, **named: Any) -> TargetResult:
        os.write(1, b"written from C\n")
        print("printed from Python")
        return check_target(*arguments, **named)

    monkeypatch.setattr("equivalence.hunting.check_target", chatty)
    finished = run("check", "torch.sdpa", *QUICK, *AGREES, "--json", "-")
    assert finished.code == 0
    assert from_json(finished.out).targets[0].held is True
    assert "written from C\n" in finished.err
    assert "printed from Python\n" in finished.err


def test_json_to_a_device_is_written_too(run: Run) -> None:
    assert run("check", "kernels.py:right", *QUICK, *AGREES, "--json", "/dev/null").code == 0


def test_a_report_replaces_the_one_before(run: Run, folder: Path) -> None:
    (folder / "report.json").write_text("old")
    (folder / "report.json").chmod(0o640)
    arguments = (*QUICK, *AGREES, "--json", "report.json")
    assert run("check", "kernels.py:right", *arguments).code == 0
    assert from_json((folder / "report.json").read_bytes()).targets
    assert (folder / "report.json").stat().st_mode & 0o777 == 0o640


def test_several_targets_get_one_table(run: Run) -> None:
    finished = run("check", "kernels.py:right", "kernels.py:chatty", *QUICK, "--law", "causality",
                   "--law", "agrees-with-float64")  # fmt: skip
    lines = finished.out.splitlines()
    assert [line.split()[0] for line in lines if line.startswith("kernels.py:")] == [
        "kernels.py:right", "kernels.py:chatty", "kernels.py:right", "kernels.py:chatty",
    ]  # fmt: skip
    assert "a causality  b agrees-with-float64" in lines


def test_timings_say_where_the_time_went(run: Run) -> None:
    finished = run("check", "kernels.py:right", *QUICK, *AGREES, "--timings")
    said = r"^time: agrees-with-float64 \S+ s; the median of \d+ calls \S+ ms float32$"
    assert re.search(said, finished.out, re.MULTILINE)
