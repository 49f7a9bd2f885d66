"""`--timings` of check and of pytest: times per law and dtype, on which nothing is asserted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from equivalence import cli, plugin
from equivalence.calling import LocalTarget
from equivalence.engine import Request, check_target
from equivalence.registry import entries
from equivalence.report.json import to_json
from equivalence.results import RunResult

LAWS = ("agrees-with-float64", "causality")


@pytest.mark.parametrize("name", ["mla.q_fold", "cache.contiguous", "varlen.one_by_one"])
def test_every_law_says_what_its_calls_took(name: str) -> None:
    target = entries()[name].load()
    result = check_target(target, Request(examples=3, dtypes=("float32",), timings=True))
    # What must be refused is never answered, so there is no call to be timed.
    timed = [law for law in result.laws if law.examples and "refused" not in law.law]
    assert timed
    for law in timed:
        assert law.times, law.law
        assert all(seconds >= 0 for seconds in law.times)
    report = json.loads(to_json(RunResult(targets=[result])))
    (shown,) = report["targets"]
    for law in shown["laws"]:
        for row in law["dtypes"]:
            if row["timing"] is not None:
                assert row["timing"]["calls"] >= 1
                assert 0 <= row["timing"]["minimum"] <= row["timing"]["median"]
                assert f"{law['name']} {row['dtype']}: median call" in shown["timings"]


def test_nothing_is_kept_unless_it_is_asked_for() -> None:
    target = entries()["torch.q_fold"].load()
    result = check_target(target, Request(examples=5, dtypes=("float32",), laws=LAWS))
    assert [law.times for law in result.laws] == [[], []]


def test_the_time_is_that_of_the_kernel() -> None:
    right = entries()["torch.q_fold"].load().function

    def works(query, key, value):
        sum(range(20_000))
        return right(query, key, value)

    request = Request(examples=5, dtypes=("float32",), laws=LAWS[:1], timings=True)
    quick, busy = (
        check_target(LocalTarget.of(function, name="k"), request).laws[0].times
        for function in (lambda query, key, value: right(query, key, value), works)
    )
    assert min(busy) > min(quick)


def test_the_command_shows_them(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["check", "torch.q_fold", "--examples", "5", "--dtype", "float32", "--timings"]
    assert cli.run([*asked, "--law", "causality"]) == 0
    shown = capsys.readouterr().out
    assert "time: causality " in shown
    assert "the median of " in shown


def test_the_short_option_is_left_to_whoever_has_it() -> None:
    class Parser:
        def __init__(self, *taken: str) -> None:
            self.names = list(taken)

        def getgroup(self, name: str) -> Parser:
            return self

        def addoption(self, name: str, **_: object) -> None:
            if name in self.names:
                raise ValueError(f"option {name} already added")
            self.names.append(name)

    free, taken = Parser(), Parser("--timings")
    for parser in (free, taken):
        plugin.pytest_addoption(parser)
        assert "--equivalence-timings" in parser.names
    assert "--timings" in free.names


@pytest.mark.slow
def test_pytest_records_them(tmp_path: Path) -> None:
    (tmp_path / "test_kernel.py").write_text(
        "import equivalence\n"
        "test_it = equivalence.conformance('torch.q_fold', dtypes=['float32'],\n"
        "                                  laws=['causality'], examples=5)\n"
    )
    finished = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "equivalence.plugin", "-p", "no:cacheprovider",
         "--timings", "--junit-xml=out.xml"],
        cwd=tmp_path, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "time of a call: torch.q_fold causality float32 calls=" in finished.stdout
    assert "equivalence.timing" in (tmp_path / "out.xml").read_text()
