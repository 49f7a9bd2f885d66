"""Targets against each other: `equivalence compare`, and `check --against`."""

from __future__ import annotations

from pathlib import Path

from equivalence.report.json import from_json
from tests.commands import Run

QUICK = ("--examples", "6", "--dtype", "float32")


def test_equal_formulations_agree(run: Run, folder: Path) -> None:
    finished = run("compare", "kernels.py:right", "kernels.py:chatty", *QUICK, "--json", "c.json")
    assert finished.code == 0
    assert finished.out.startswith("all agree: ")
    assert "100% equal bit for bit" in finished.out
    (pair,) = from_json((folder / "c.json").read_bytes()).pairs
    assert (pair.held, pair.equal, pair.broken) == (True, pair.compared, 0)


def test_the_odd_one_out_is_named_with_a_case(run: Run, folder: Path) -> None:
    targets = ("kernels.py:right", "torch.repeat_kv", "kernels.py:interleaved")
    finished = run("compare", *targets, *QUICK, "--json", "c.json")
    assert finished.code == 1
    lines = finished.out.splitlines()
    assert lines[0].endswith("; odd one out: kernels.py:interleaved")
    assert "  case      AttentionCase(num_kv_heads=2, group_size=2)" in lines
    assert any(line.startswith("  replay    equivalence replay kernels.py:inter") for line in lines)
    report = from_json((folder / "c.json").read_bytes())
    assert report.odd == ["kernels.py:interleaved"]
    assert sorted(pair.held is False for pair in report.pairs) == [False, True, True]


def test_one_target_is_no_comparison(run: Run) -> None:
    finished = run("compare", "kernels.py:right")
    assert (finished.code, finished.out) == (2, "")
    assert "compare kernels.py:right: give two targets or more" in finished.err


def test_nothing_compared_is_not_green(run: Run) -> None:
    finished = run("compare", "kernels.py:right", "kernels.py:refuses", *QUICK)
    assert finished.code == 1
    assert finished.out.startswith("no pair was compared: kernels.py:refuses refused: ")


def test_against_a_previous_version(run: Run, folder: Path) -> None:
    law = ("--law", "inputs-are-not-modified")
    finished = run(
        "check", "kernels.py:right", "--against", "kernels.py:chatty", *QUICK, *law,
        "--json", "report.json",
    )  # fmt: skip
    assert finished.code == 0
    assert "kernels.py:right against kernels.py:chatty: all agree: " in finished.out
    assert from_json((folder / "report.json").read_bytes()).pairs[0].held is True

    finished = run("check", "kernels.py:right", "--against", "kernels.py:interleaved", *QUICK, *law)
    assert finished.code == 1
    assert "Disagreement: kernels.py:right disagrees with kernels.py:interleaved" in finished.out


def test_an_unknown_previous_version_is_refused(run: Run) -> None:
    finished = run("check", "kernels.py:right", "--against", "kernels.py:wrong")
    assert (finished.code, finished.out) == (2, "")
    assert "has no wrong" in finished.err
