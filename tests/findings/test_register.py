"""Every finding states what the register needs, and its script shows it today."""

from __future__ import annotations

import contextlib
import io
import warnings

import pytest

from equivalence.errors import InvalidRequest
from equivalence.findings import finding_named, register, rerun
from equivalence.findings.register import parsed

IN_TORCH = [name for name, one in register().items() if set(one.runtime) == {"torch"}]
SCRIPT = '''"""A title

runtime: hypothesis 6.0
kind: wrong numbers
case: nothing
got: 1
expected: 2
{more}
Why.
"""

{body}
'''


def finding(body: str, more: str = ""):
    return parsed("example", SCRIPT.format(body=body, more=more))


def test_there_are_25_and_10_of_them_are_wrong_numbers_or_crashes():
    severe = [one for one in register().values() if one.kind in ("wrong numbers", "crash")]
    assert len(register()) >= 25
    assert len(severe) >= 10


@pytest.mark.parametrize("name", register())
def test_it_says_what_it_is(name):
    one = register()[name]
    assert one.got != one.expected
    assert len(one.diagnosis) > 60
    assert one.name.split("-")[0] in next(iter(one.runtime))
    assert "equivalence" not in one.body, "a script needs nothing but the runtime"
    compile(one.script, name, "exec")


@pytest.mark.parametrize("name", IN_TORCH)
def test_what_torch_does_is_still_so(name):
    one, printed = register()[name], io.StringIO()
    with contextlib.redirect_stdout(printed), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(one.script, name, "exec"), {"__name__": "__main__"})
    assert printed.getvalue().splitlines()[-1] == f"got {one.got}"


@pytest.mark.slow
@pytest.mark.parametrize("name", register())
def test_it_is_as_the_register_says(name):
    status = rerun(register()[name])
    if status.word == "not installed":
        pytest.skip(f"{name}: its runtime is not installed")
    assert status.as_recorded, status


def test_a_script_that_prints_the_fault_is_still_so():
    assert rerun(finding("print('noise'); print('got 1')")).word == "still so"


def test_a_mended_runtime_is_noticed():
    status = rerun(finding("print('got 2')"))
    assert (status.word, status.as_recorded) == ("fixed", False)


def test_a_release_that_is_known_to_be_mended_is_as_recorded():
    status = rerun(finding("print('got 2')", "fixed: 6.1\n"))
    assert (status.word, status.as_recorded) == ("fixed", True)
    again = rerun(finding("print('got 1')", "fixed: 6.1\n"))
    assert (again.word, again.as_recorded) == ("still so", False)


def test_another_answer_is_neither():
    status = rerun(finding("raise ValueError('new')"))
    assert (status.word, status.as_recorded) == ("changed", False)
    assert status.got == "exit code 1: ValueError: new"


def test_the_end_of_the_process_is_an_answer():
    status = rerun(finding("import os; os.abort()"))
    assert status.got == "SIGABRT"


def test_a_script_that_hangs_is_an_answer():
    status = rerun(finding("while True: pass"), seconds=0.5)
    assert (status.word, status.got) == ("changed", "no answer in 0.5 s")


def test_a_runtime_that_is_not_there_is_no_failure():
    script = SCRIPT.format(body="", more="").replace("hypothesis 6.0", "no-such-runtime 1.0")
    status = rerun(parsed("example", script))
    assert (status.word, status.as_recorded) == ("not installed", True)


@pytest.mark.parametrize(
    "wrong", [("kind: wrong numbers", "kind: bad"), ("got: 1\n", ""), ("case:", "cases:")]
)
def test_a_page_that_leaves_something_out_is_refused(wrong):
    with pytest.raises(ValueError, match="finding example"):
        parsed("example", SCRIPT.format(body="", more="").replace(*wrong))


def test_an_unknown_name_is_refused_with_the_closest():
    with pytest.raises(InvalidRequest, match="did you mean torch-nan-key-becomes-zero"):
        finding_named("torch-nan-key-becomes-one")
