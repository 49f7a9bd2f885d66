"""A disk that is full, and two runs that write to one folder: a clear outcome each."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from equivalence.report.json import from_json
from tests.commands import Run

Start = Callable[..., subprocess.Popen[str]]
CHECK = (
    "check", "kernels.py:interleaved", "--examples", "25", "--dtype", "float32",
    "--law", "agrees-with-float64",
)  # fmt: skip
needs_full = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")


@needs_full
def test_a_report_to_a_full_device_is_told_in_one_line(run: Run) -> None:
    finished = run(*CHECK, "--json", "/dev/full")
    assert finished.code == 2
    said = "--json /dev/full cannot be written: no space left on device"
    assert finished.err == f"equivalence: {said}\n"
    assert "kernels.py:interleaved does not hold" in finished.out  # what was found is not lost


@needs_full
@pytest.mark.slow
def test_an_output_that_does_not_fit_is_told_in_one_line(start: Start) -> None:
    with open("/dev/full", "w") as full:
        process = start(*CHECK, stdout=full)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert err == "equivalence: the output cannot be written: no space left on device\n"


@pytest.mark.slow
def test_a_disk_that_fills_up_leaves_the_old_report(start: Start, folder: Path) -> None:
    (folder / "report.json").write_text("the old one")

    def small() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))

    process = start(*CHECK, "--json", "report.json", "--database", "failing", preexec_fn=small)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert err == "equivalence: --json report.json cannot be written: file too large\n"
    assert (folder / "report.json").read_text() == "the old one"
    assert not list(folder.glob(".report*"))


@pytest.mark.slow
def test_two_runs_in_one_folder(start: Start, folder: Path) -> None:
    arguments = (*CHECK, "--json", "report.json", "--database", "failing", "--script", "scripts")
    runs = [start(*arguments), start(*arguments)]
    assert [run.wait(timeout=120) for run in runs] == [1, 1]
    for run in runs:
        assert run.communicate()[1] == ""
    report = from_json((folder / "report.json").read_bytes())
    assert report.targets[0].held is False
    (cases,) = (folder / "failing").iterdir()
    assert cases.read_text().endswith(
        "agrees-with-float64 AttentionCase(num_kv_heads=2, group_size=2)\n"
    )
    assert [path.suffix for path in (folder / "scripts").iterdir()] == [".py"]
