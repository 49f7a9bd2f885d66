"""`equivalence gate` from its files to its exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from equivalence.gate.baseline import baseline_of, to_text
from tests.commands import Run

from .conftest import found, law, report, target, text

GATE = ("gate", "--baseline", "baseline.json")
CHECK = ("check", "kernels.py:kernel", "--examples", "12", "--law", "agrees-with-float64")


def test_a_run_its_baseline_and_what_breaks_it(run: Run, folder: Path) -> None:
    assert run(*CHECK, "--json", "run.json").code == 0
    finished = run(*GATE, "--update", "run.json")
    assert (finished.code, finished.out) == (0, "baseline.json written\n")
    assert str(folder) not in (folder / "baseline.json").read_text()
    finished = run(*GATE, "run.json", "run.json")
    assert (finished.code, finished.out) == (0, "nothing is looser than baseline.json\n")

    (folder / "broken").touch()
    finished = run(*GATE)  # runs now, the way the baseline was made
    assert finished.code == 1
    assert "looser: kernels.py:kernel: agrees-with-float64 float32: broke: equivalence replay" in (
        finished.out
    )

    (folder / "equivalence-xfails.txt").write_text(
        "kernels.py:kernel | agrees-with-float64 | acme#2 | 2999-01-01\n"
    )
    assert run(*CHECK, "--json", "excused.json").code == 0
    finished = run(*GATE, "excused.json")
    assert "broke" not in finished.out
    (folder / "broken").unlink()
    finished = run(*GATE, "run.json")
    assert finished.code == 1
    assert "no longer fails, remove it" in finished.out


def test_what_a_run_excused_needs_an_entry_here_too(run: Run, folder: Path) -> None:
    (folder / "baseline.json").write_text(to_text(baseline_of(found(target()))))
    known = law(known="expected failure until 2999-01-01: acme#2")
    (folder / "run.json").write_text(text(report(target("it", known))))
    finished = run(*GATE, "run.json")
    assert finished.code == 1
    assert "looser: it: causality float32: broke" in finished.out


def test_update_says_what_it_accepts(run: Run, folder: Path) -> None:
    (folder / "baseline.json").write_text(to_text(baseline_of(found(target()))))
    worse = target("it", law(used=0.75), profile="eager")
    (folder / "run.json").write_text(text(report(worse, target("new"))))
    finished = run(*GATE, "--update", "run.json")
    assert finished.code == 0
    assert finished.out.splitlines() == [
        "accepted: it: judged by profile eager, was flash",
        "accepted: it: causality float32: uses 0.75 of its bound, was at most 0.5",
        "locked in: new: not in the baseline yet",
        "baseline.json written",
    ]
    assert run(*GATE, "run.json").code == 0


def test_an_interrupted_run_is_no_baseline(run: Run, folder: Path) -> None:
    (folder / "run.json").write_text(text(report(target(interrupted=True))))
    assert run(*GATE, "--update", "run.json").code == 1
    assert not (folder / "baseline.json").exists()


GOOD = to_text(baseline_of(found(target())))


def changed(**changes: Any) -> str:
    """The baseline with other top-level fields."""
    return json.dumps({**json.loads(GOOD), **changes})


@pytest.mark.parametrize(
    ("baseline", "said"),
    [
        (changed(schema=2), "has schema 2, which a newer version wrote; this version reads 1"),
        (changed(schema=10**40), "--baseline baseline.json"),
        (changed(schema=2, targets=[]), "has schema 2, which a newer version wrote"),
        (GOOD[: len(GOOD) // 2], "is not a baseline of `equivalence gate`"),
        ("", "is not a baseline"),
        ("null", "is not a baseline"),
        ("[" * 200_000, "is not a baseline"),
        ('{"schema": 1, "runs": ' + "[" * 200_000, "is not a baseline"),
        ('{"a": ' * 100_000, "is not a baseline"),
        (GOOD.replace('"examples": 100', '"examples": -1'), "is not a baseline"),
        (GOOD.replace('"examples": 100', '"examples": 1e999'), "is not a baseline"),
        (GOOD.replace('"examples": 100', '"examples": ' + "9" * 5_000), "is not a baseline"),
        (GOOD.replace('"used": 0.5', '"used": "__import__(\'os\')"'), "not a number"),
        (GOOD.replace('"used": 0.5', '"used": 1e999'), "is not a baseline"),
        (changed(graph={}), "unknown field `graph`"),
        ('{"schema": 1}\x00', "is not a baseline"),
        ("\udcff", "is not a baseline"),
    ],
)
def test_a_baseline_that_is_none(run: Run, folder: Path, baseline: str, said: str) -> None:
    (folder / "baseline.json").write_bytes(baseline.encode("utf-8", "surrogateescape"))
    (folder / "run.json").write_text(text(report(target())))
    finished = run(*GATE, "run.json")
    assert (finished.code, finished.out) == (2, "")
    assert said in finished.err
    assert finished.err.count("\n") == 1
    assert len(finished.err) < 400


RUN = text(report(target()))


@pytest.mark.parametrize(
    ("hostile", "said"),
    [
        (RUN.replace('"schema": 1', '"schema": 9'), "run.json has schema 9, which a newer version"),
        (RUN[:-40], "run.json is not a report"),
        ("[" * 200_000, "run.json is not a report"),
        (RUN.replace('"examples": 100', '"examples": 9' + "9" * 30), "run.json"),
        (RUN.replace('"examples": 100', '"examples": -3'), "a count is out of range"),
        (RUN.replace('"seed": 0', '"seed": "zero"'), "no whole number in range"),
        (RUN.replace('"seed": 0', '"seed": ' + "9" * 5_000), "run.json"),
        (RUN.replace('"used": 0.5', '"used": "much"'), "'much', not a number"),
        ('{"schema": 1, "environment": ' + '{"a": ' * 100_000, "run.json is not a report"),
    ],
)
def test_a_report_that_is_none(run: Run, folder: Path, hostile: str, said: str) -> None:
    (folder / "baseline.json").write_text(GOOD)
    (folder / "run.json").write_text(hostile)
    finished = run(*GATE, "run.json")
    assert (finished.code, finished.out) == (2, "")
    assert said in finished.err
    assert finished.err.count("\n") == 1
    assert len(finished.err) < 400


def test_files_that_cannot_be_read_or_written(run: Run, folder: Path) -> None:
    (folder / "run.json").write_text(RUN)
    for arguments, said in (
        ((*GATE, "run.json"), "baseline.json cannot be read: no such file"),
        ((*GATE, "--update"), "needs the reports of a run"),
        ((*GATE, "--update", "missing.json"), "missing.json cannot be read"),
        (("gate", "--baseline", "no/where.json", "--update", "run.json"), "no folder no"),
        (("gate", "--baseline", ".", "run.json"), "is a directory"),
        (("gate", "run.json"), "--baseline"),
    ):
        finished = run(*arguments)
        assert finished.code == 2
        assert said in finished.err
        assert finished.err.count("\n") == 1
    assert sorted(path.name for path in folder.iterdir()) == ["kernels.py", "run.json"]
