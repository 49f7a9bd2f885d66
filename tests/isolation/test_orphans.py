"""However the process that uses a worker ends, the worker ends too, and says nothing."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from equivalence.case import AttentionCase
from equivalence.inputs import attention_inputs
from equivalence.isolation import spawning
from equivalence.isolation.supervise import Limits
from equivalence.isolation.target import IsolatedTarget

HERE = Path(__file__).parent
LIGHT = HERE / "without_torch.py"
ROOT = HERE.parents[1]
START = """
import json, os, sys, time
from equivalence.case import AttentionCase
from equivalence.inputs import attention_inputs
from equivalence.isolation.opening import open_target
from equivalence.isolation.supervise import Limits
from equivalence.isolation.target import IsolatedTarget
inputs = attention_inputs(AttentionCase())
NUMPY = {"arrays": "numpy"}
"""


def started(program, **options):
    """A program that has told the process ids of its workers in its first line."""
    process = subprocess.Popen(
        [sys.executable, "-c", START + textwrap.dedent(program)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **options,
    )
    told = process.stdout.readline()
    if not told:
        pytest.fail(process.communicate()[1])
    workers = [psutil.Process(pid) for pid in json.loads(told)]
    return process, [*psutil.Process(process.pid).children(recursive=True), *workers]


def gone(processes):
    return psutil.wait_procs(processes, timeout=10)[1] == []


@pytest.mark.parametrize(
    ("kernel", "facts"),
    [
        pytest.param("kernels.py:loops", "{}", marks=pytest.mark.slow),
        ("without_torch.py:sleeps_holding_the_lock", "NUMPY"),
    ],
)
def test_killing_the_parent_kills_server_and_worker(kernel, facts):
    process, others = started(f"""
        target = open_target("{HERE}/{kernel}", facts={facts})
        idle = open_target("{LIGHT}:well_behaved", facts=NUMPY)
        if os.fork() == 0:  # a copy that lives on must not keep them alive
            time.sleep(30)
            os._exit(0)
        print(json.dumps([target.pid, idle.pid]), flush=True)
        target.call(inputs)
    """)
    with process:
        mine = [p for p in others if "equivalence.isolation.server" in " ".join(p.cmdline())]
        copies = [p for p in others if p not in mine]
        assert len(set(mine)) == 3, "the server and two workers"
        os.kill(process.pid, signal.SIGKILL)
        assert gone(mine)
        assert [copy.is_running() for copy in copies] == [True]
        copies[0].kill()
        assert process.wait(10) == -signal.SIGKILL


@pytest.mark.slow
def test_killing_the_parent_of_a_spawned_worker_kills_it():
    process, others = started(f"""
        target = IsolatedTarget("{HERE}/kernels.py:loops", method="spawn")
        print(json.dumps([target.pid]), flush=True)
        target.call(inputs)
    """)
    with process:
        os.kill(process.pid, signal.SIGKILL)
        assert gone(others)


@pytest.mark.slow
def test_an_interrupt_is_quiet_and_leaves_nothing():
    process, others = started(f"""
        target = open_target("{HERE}/kernels.py:loops")
        try:
            print(json.dumps([target.pid]), flush=True)
            target.call(inputs)
        except KeyboardInterrupt:
            print("interrupted", target.pid, flush=True)
    """)
    time.sleep(1.0)  # for the parent to wait for its worker: that is what is interrupted
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    out, err = process.communicate(timeout=20)
    assert (out, err, process.returncode) == ("interrupted None\n", "", 0)
    assert gone(others)


def test_standard_output_stays_pure_and_the_end_is_clean():
    process, others = started(
        f"""
        target = open_target("{LIGHT}:prints", facts=NUMPY)
        print(json.dumps([target.pid]), flush=True)
        status = target.call(inputs).status
        open_target("{LIGHT}:aborts", facts=NUMPY).call(inputs)
        print(json.dumps(status))
        """,
        env={**os.environ, "PYTHONWARNINGS": "error", "PYTHONDEVMODE": "1"},
    )
    out, err = process.communicate(timeout=30)
    assert (out, err, process.returncode) == ('"returned"\n', "", 0)
    assert gone(others)


def test_a_new_server_takes_the_place_of_a_dead_one(monkeypatch):
    monkeypatch.setattr(spawning, "_servers", {})  # the one of the other tests lives on
    inputs = attention_inputs(AttentionCase())
    target = IsolatedTarget(f"{LIGHT}:well_behaved", facts={"arrays": "numpy"})
    server = spawning._servers[False]
    server.process.kill()
    server.process.wait()
    outcome = target.call(inputs)
    assert (outcome.status, outcome.text[:18]) == ("died", "killed by SIGKILL ")
    assert target.call(inputs).status == "returned"
    assert spawning._servers[False] is not server
    target.close()
    spawning._servers[False].close()


def test_torch_is_imported_for_its_own_targets_only():
    """One server with torch does for all; without one, numpy's targets wait for none."""
    program = f'print(IsolatedTarget("{LIGHT}:names_torch", facts=NUMPY).call(inputs).text)'
    finished = subprocess.run(
        [sys.executable, "-c", START + program], cwd=ROOT, capture_output=True, text=True
    )
    assert finished.stdout == "NotImplementedError: torch is imported: False\n", finished.stderr
    opened = [IsolatedTarget(f"{HERE}/kernels.py:well_behaved")]
    opened.append(IsolatedTarget(f"{LIGHT}:names_torch", facts={"arrays": "numpy"}))
    outcome = opened[1].call(attention_inputs(AttentionCase()))
    assert (outcome.status, outcome.text) == (
        "refused",
        "NotImplementedError: torch is imported: True",
    )
    for target in opened:
        target.close()


@pytest.mark.slow
def test_spawned_workers_work_alike():
    inputs = attention_inputs(AttentionCase())
    limits = Limits(seconds=1.0)
    target = IsolatedTarget(f"{HERE}/kernels.py:aborts", method="spawn", limits=limits)
    assert target.call(inputs).text.startswith("killed by SIGABRT in aborts, kernels.py line ")
    target.close()
    target = IsolatedTarget(f"{HERE}/kernels.py:loops", method="spawn", limits=limits)
    assert target.call(inputs).text.startswith("no answer after 1 s in loops, kernels.py line ")
    target.close()


def test_no_descriptor_is_left_open():
    process = psutil.Process()
    IsolatedTarget(f"{HERE}/kernels.py:well_behaved").close()
    before = process.num_fds()
    for kernel in ("aborts", "well_behaved", "exits_softly"):
        target = IsolatedTarget(f"{HERE}/kernels.py:{kernel}")
        target.call(attention_inputs(AttentionCase()))
        target.close()
    assert process.num_fds() == before
