"""`equivalence findings`, with the register replaced by three findings that take no time."""

from __future__ import annotations

import json

import pytest

from equivalence.cli import run
from equivalence.findings import register as module_register
from equivalence.findings.register import parsed

SCRIPT = '''"""Title of {name}

runtime: {runtime}
kind: crash
case: nothing
got: 1
expected: 2

Why.
"""

print("got {prints}")
'''


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch):
    def have(**prints: str) -> None:
        found = {
            name: parsed(
                name,
                SCRIPT.format(
                    name=name,
                    runtime="no-such 1" if printed == "absent" else "hypothesis 6.0",
                    prints=printed,
                ),
            )
            for name, printed in prints.items()
        }
        monkeypatch.setattr("equivalence.findings.register", lambda: found)
        monkeypatch.setattr("equivalence.findings.finding_named", found.__getitem__)

    assert callable(module_register)
    return have


def test_all_as_recorded(listed, capsys):
    listed(one="1", two="absent")
    assert run(["findings"]) == 0
    said = capsys.readouterr().out
    assert "still so       one (hypothesis " in said
    assert said.splitlines()[-1] == "1 of 2 could not run: their runtime is not installed"


def test_one_that_was_named_and_cannot_run_is_not_green(listed, capsys):
    listed(one="1", two="absent")
    assert run(["findings", "one", "two"]) == 2
    printed = capsys.readouterr()
    assert "still so       one (hypothesis " in printed.out
    assert printed.err == "equivalence: two: no-such not installed: pip install no-such\n"
    assert run(["findings", "two", "--list"]) == 0


def test_nothing_that_could_run_is_not_green(listed, capsys):
    listed(one="absent", two="absent")
    assert run(["findings"]) == 1
    assert capsys.readouterr().out.splitlines()[-1].startswith("2 of 2 could not run")


def test_a_fix_fails_the_run(listed, capsys):
    listed(one="1", two="2")
    assert run(["findings"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "out of date: two"


def test_json(listed, capsys):
    listed(one="1", two="3")
    assert run(["findings", "--json", "-"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [row["status"] for row in found["findings"]] == ["still so", "changed"]
    assert found["findings"][1]["got"] == "3"


def test_a_script_is_printed_as_it_is(listed, capsys):
    listed(one="1")
    assert run(["findings", "one", "--script"]) == 0
    assert capsys.readouterr().out == SCRIPT.format(
        name="one", runtime="hypothesis 6.0", prints="1"
    )


def test_an_unknown_name_is_one_line(capsys):
    assert run(["findings", "xyzzy"]) == 2
    assert capsys.readouterr().err == (
        "equivalence: there is no finding called 'xyzzy'; `equivalence findings` lists them\n"
    )
