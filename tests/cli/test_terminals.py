"""A terminal gets a progress bar, colours and boxes; a pipe gets none; Ctrl-C ends cleanly."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from equivalence import cli
from tests.commands import Run

from .conftest import COMMAND

OnTerminal = Callable[..., tuple[int, str]]
QUICK = ("--examples", "10", "--dtype", "float32", "--law", "agrees-with-float64")
# Wrong, and without a worker process that imports torch as well.
WRONG = ("check", "torch.sdpa", "--declare", "causal=lower_right", *QUICK)
# Of numpy's arrays: its process does not wait for torch.
SLOW = """
import time

import numpy as np

calls = 0


def slow(query, key, value):
    global calls
    calls += 1
    if calls > 150:  # its features have been tried
        open("searching", "w").close()
        time.sleep(0.02)
    group = query.shape[1] // key.shape[1]
    key, value = key.repeat(group, 1), value.repeat(group, 1)
    scores = query @ key.swapaxes(2, 3) * query.shape[3] ** -0.5
    weights = np.exp(scores - scores.max(3, keepdims=True, initial=-np.inf))
    return weights / weights.sum(3, keepdims=True) @ value
"""


@pytest.fixture
def on_terminal(folder: Path, monkeypatch: pytest.MonkeyPatch) -> OnTerminal:
    """Run the command on a terminal of 80 columns; its code and all that the terminal got."""

    def on_terminal(*arguments: str, **environment: str) -> tuple[int, str]:
        leader, follower = pty.openpty()
        pieces: list[bytes] = []

        def read() -> None:
            with contextlib.suppress(OSError):  # Linux says so when the other end is closed
                while piece := os.read(leader, 65536):
                    pieces.append(piece)

        reader = threading.Thread(target=read)
        reader.start()
        with monkeypatch.context() as patched, open(follower, "w", encoding="utf-8") as terminal:
            patched.delenv("CI", raising=False)
            terminals = {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "50"}
            for name, value in {**terminals, **environment}.items():
                patched.setenv(name, value)
            patched.setattr(sys, "stdout", terminal)
            patched.setattr(sys, "stderr", terminal)
            code = cli.run(arguments)
        reader.join(timeout=60)
        os.close(leader)
        return code, b"".join(pieces).decode()

    return on_terminal


def test_a_terminal_gets_a_bar_colours_and_signs(on_terminal: OnTerminal) -> None:
    code, shown = on_terminal(*WRONG)
    assert code == 1
    assert "searching" in shown
    assert "━" in shown
    assert "✗" in shown
    assert "\x1b[1;31m" in shown


@pytest.mark.slow
def test_a_dumb_terminal_gets_plain_text(on_terminal: OnTerminal) -> None:
    _, shown = on_terminal("check", "kernels.py:right", *QUICK, TERM="dumb")
    assert "\x1b" not in shown
    assert "━" not in shown


def test_no_color_is_honoured_and_tables_fit_80_columns(on_terminal: OnTerminal) -> None:
    _, shown = on_terminal(
        "check", "torch.repeat_interleave", "torch.sdpa", *QUICK, "--law", "causality",
        NO_COLOR="1",
    )  # fmt: skip
    assert "\x1b[3" not in shown
    assert "\x1b[1;3" not in shown
    assert "✓" in shown
    table = shown[shown.index(" target  ") :].splitlines()[:4]
    rows = [line for line in table if line.startswith((" target", " torch", " ──"))]
    assert len(rows) == 4
    assert max(map(len, rows)) <= 80


def test_a_pipe_gets_plain_text(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    finished = run(*WRONG)
    assert (finished.code, finished.err) == (1, "")
    assert finished.out.isascii()
    assert "\x1b" not in finished.out


@pytest.mark.slow
def test_a_pipe_of_another_process_gets_plain_text(spawn: Run) -> None:
    finished = spawn(*WRONG, PYTHONIOENCODING="ascii", FORCE_COLOR="1")
    assert (finished.code, finished.err) == (1, "")
    assert finished.out.isascii()
    assert "\x1b" not in finished.out


def test_ctrl_c_keeps_what_is_known(folder: Path) -> None:
    (folder / "slow.py").write_text(SLOW)
    asked = ("check", "slow.py:slow", "--arrays", "numpy", "--dtype", "float32")
    process = subprocess.Popen(
        [*COMMAND, *asked, "--json", "report.json"],
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    for _ in range(600):
        if (folder / "searching").exists():
            break
        time.sleep(0.1)
    time.sleep(0.5)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers too
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "(interrupted: this is what was known)" in out.splitlines()[0]
    report = json.loads((folder / "report.json").read_text())
    assert report["interrupted"] is True
    assert report["targets"][0]["interrupted"] is True


def test_a_reader_that_leaves_is_no_error(folder: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    finished = subprocess.run(
        [*COMMAND, "backends", "--brief"],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writing)
    assert (finished.returncode, finished.stderr) == (141, "")
