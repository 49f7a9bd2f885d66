"""Expected failures in `equivalence check` and in conformance tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from equivalence.report.json import from_json
from tests.commands import Run

CHECK = ("check", "kernels.py:interleaved", "--examples", "8", "--law", "agrees-with-float64")
ENTRY = "kernels.py:interleaved | agrees-with-float64 | acme#1 | 2999-12-31\n"


def test_an_expected_failure_is_shown_and_fails_nothing(run: Run, folder: Path) -> None:
    assert run(*CHECK).code == 1
    (folder / "equivalence-xfails.txt").write_text(ENTRY)
    finished = run(*CHECK, "--json", "report.json")
    assert (finished.code, finished.err) == (0, "")
    assert "agrees-with-float64: expected failure until 2999-12-31: acme#1" in finished.out
    report = from_json((folder / "report.json").read_bytes())
    assert report.targets[0].laws[0].known.startswith("expected failure until 2999-12-31")


def test_another_law_that_the_fault_breaks_is_told_with_its_name(run: Run, folder: Path) -> None:
    (folder / "equivalence-xfails.txt").write_text(ENTRY)
    finished = run(*CHECK, "--law", "batch-rows-are-independent", "--law", "head-permutation")
    assert (finished.code == 1) == ("does not hold: 1 fault" in finished.out)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (
            "kernels.py:interleaved | agrees-with-float64 | old | 2020-01-01",
            "line 1, kernels.py:interleaved | agrees-with-float64: expired on 2020-01-01 (old)",
        ),
        (
            f"{ENTRY}kernels.py:interleaved | no-such-law | why | 2999-12-31",
            "line 2, kernels.py:interleaved | no-such-law: matches nothing",
        ),
        (
            f"{ENTRY}kernels.py:intreleaved | agrees-with-float64 | why | 2999-12-31",
            "matches nothing: there is no target kernels.py:intreleaved",
        ),
    ],
)
def test_a_stale_entry_fails_the_run(run: Run, folder: Path, entry: str, said: str) -> None:
    (folder / "other.txt").write_text(entry)
    finished = run(*CHECK, "--xfails", "other.txt", "--json", "report.json")
    assert finished.code == 1
    assert said in finished.out
    assert any(said in line for line in from_json((folder / "report.json").read_bytes()).complaints)


def test_an_entry_that_no_longer_fails_fails_the_run(run: Run, folder: Path) -> None:
    (folder / "equivalence-xfails.txt").write_text(ENTRY.replace("interleaved", "right"))
    finished = run("check", "kernels.py:right", "--examples", "5", "--law", "agrees-with-float64")
    assert finished.code == 1
    assert "kernels.py:right | agrees-with-float64: no longer fails, remove it" in finished.out
    # What was not judged may fail as well as not.
    finished = run("check", "kernels.py:right", "--examples", "5", "--law", "within-hull")
    assert finished.code == 0


def test_a_list_that_is_none_is_a_wrong_request(run: Run, folder: Path) -> None:
    (folder / "equivalence-xfails.txt").write_text("everything is fine\n")
    finished = run(*CHECK)
    assert finished.code == 2
    assert finished.err.count("\n") == 1
    assert run(*CHECK, "--xfails", "missing.txt").code == 2


def test_in_conformance(tests: Callable[[], str], folder: Path) -> None:
    (folder / "equivalence-xfails.txt").write_text(
        ENTRY
        + "kernels:right | agrees-with-float64 | why | 2999-12-31\n"
        + "right | within-hull[float32] | why | 2020-01-01\n"
    )
    said = tests()
    assert "XFAIL test_kernels.py::test_interleaved[agrees-with-float64-float32]" in said
    assert "expected failure until 2999-12-31: acme#1" in said
    assert "kernels:right | agrees-with-float64: no longer fails, remove it" in said
    assert "right | within-hull[float32]: expired on 2020-01-01" in said
    assert "2 failed, " in said
