"""Backends checked in processes side by side: none is lost, whichever of them ends its process."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys

import pytest

from equivalence.cli import run
from equivalence.cli.side_by_side import Asked, side_by_side
from equivalence.request import Request

ASKED = Asked(request=Request(), facts={}, hunt=None, database=None, seconds=None, gib=None)
WORK = """
import os

from equivalence.cli.side_by_side import Examined
from equivalence.results import TargetResult


def work(given):
    name, _ = given
    if name == "torch.sdpa":
        os._exit(3)
    return Examined(result=TargetResult(target=name, kind="attention", profile=str(os.getpid())))
"""


@pytest.fixture
def work(tmp_path, monkeypatch):
    (tmp_path / "work_of_a_process.py").write_text(WORK)
    monkeypatch.syspath_prepend(tmp_path)
    return importlib.import_module("work_of_a_process").work


def test_every_name_comes_back_and_a_process_takes_one_after_the_other(work):
    names, seen = ["torch.q_fold", "torch.repeat_kv", "mla.sdpa", "cache.ring"], []
    found = dict(side_by_side(names, ASKED, workers=2, progress=seen.append, work=work))
    assert sorted(found) == sorted(names)
    assert all(one.result.trouble == "" for one in found.values())
    assert len({one.result.profile for one in found.values()}) <= 2
    assert [step.done for step in seen] == sorted(step.done for step in seen)
    assert {step.total for step in seen} == {4}


def test_one_that_ends_its_process_costs_itself_only(work):
    names = ["torch.q_fold", "torch.sdpa", "torch.repeat_kv", "mla.sdpa", "cache.ring"]
    found = dict(side_by_side(names, ASKED, workers=2, work=work))
    assert sorted(found) == sorted(names)
    troubles = {name: one.result.trouble for name, one in found.items() if one.result.trouble}
    assert troubles == {"torch.sdpa": "its process ended; `equivalence check torch.sdpa` says more"}
    assert found["torch.sdpa"].result.held is None


@pytest.mark.slow
def test_the_command_reports_them_in_the_order_of_the_registry(tmp_path, capfd):
    report = tmp_path / "report.json"
    asked = ["check", "--kind", "varlen", "--examples", "3", "--workers", "2"]
    assert run([*asked, "--json", str(report)]) == 0
    found = json.loads(report.read_text())
    names = ["varlen.one_by_one", "varlen.padded", "varlen.block_diagonal"]
    assert [target["target"] for target in found["targets"]] == names
    assert all(target["held"] is True for target in found["targets"])
    assert "not available: flash_attn.varlen" in capfd.readouterr().out


def test_what_a_library_left_in_a_process_is_tidied_up(tmp_path):
    """tqdm, which coremltools draws with, keeps a semaphore that a killed process leaves behind."""
    script = tmp_path / "leaves_a_semaphore.py"
    script.write_text(
        "import multiprocessing\n"
        "from equivalence.cli.side_by_side import Asked, Examined, side_by_side\n"
        "from equivalence.request import Request\n"
        "def work(given):\n"
        "    global kept\n"
        "    kept = multiprocessing.RLock()\n"
        "    return Examined()\n"
        "if __name__ == '__main__':\n"
        "    asked = Asked(request=Request(), facts={}, hunt=None, database=None, seconds=None,\n"
        "                  gib=None)\n"
        "    print(sorted(name for name, _ in side_by_side('ab', asked, workers=2, work=work)))\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "['a', 'b']\n"
    assert "leaked" not in done.stderr
