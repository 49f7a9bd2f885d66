"""Rounds with new seeds and growing budgets, and what is kept of them."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from equivalence.calling import LocalTarget
from equivalence.failing_cases import FailingCases
from equivalence.hunting import hunt_target
from equivalence.report.json import from_json
from equivalence.request import Progress, Request
from tests.commands import Run

SDPA = torch.nn.functional.scaled_dot_product_attention
AGREES = ("agrees-with-float64",)


def target(function: Any, **facts: Any) -> LocalTarget:
    """A function as a target."""
    return LocalTarget.of(function, name="it", facts={"dtypes": ("float32",), **facts})


def right(query: Any, key: Any, value: Any) -> Any:
    """Torch's own."""
    return SDPA(query, key, value, enable_gqa=True)


def test_rounds_grow_and_add_up() -> None:
    rounds: dict[str, int] = {}

    def note(progress: Progress) -> None:
        if progress.stage == "search":
            rounds[progress.target] = progress.total
            if len(rounds) == 4:
                raise KeyboardInterrupt

    request = Request(examples=5, laws=AGREES)
    result = hunt_target(target(right), request, seconds=300.0, progress=note)
    assert list(rounds) == ["it", "it (round 2)", "it (round 3)", "it (round 4)"]
    assert list(rounds.values()) == [5, 10, 20, 40]
    (row,) = result.laws
    assert row.held is True
    assert row.examples + row.vacuous + row.refused >= 35
    assert result.shares.cases >= 35
    assert result.interrupted


def test_a_fault_where_two_options_meet_is_found_by_the_pairs() -> None:
    """Wrong only where sinks and a window come together: chance alone needs many cases."""

    def kernel(query: Any, key: Any, value: Any, *, window_size: Any = None, sinks: Any = None,
               softcap: float | None = None) -> Any:  # fmt: skip
        group, scale = query.shape[1] // key.shape[1], query.shape[-1] ** -0.5
        key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
        scores = query @ key.mT * scale
        if softcap:
            scores = softcap * torch.tanh(scores / softcap)
        q_len, kv_len = scores.shape[-2:]
        place = torch.arange(kv_len) - torch.arange(q_len)[:, None] - (kv_len - q_len)
        if window_size is not None:
            left, right = window_size
            seen = (place >= -left) | (left < 0)
            seen = seen & ((place <= right) | (right < 0))
            scores = scores.masked_fill(~seen, -torch.inf)
        if sinks is not None:
            column = sinks.to(scores.dtype)[None, :, None, None].expand(*scores.shape[:-1], 1)
            if window_size is not None:
                column = column * 0  # the fault
            weights = torch.cat([scores, column], -1).softmax(-1)[..., :-1]
        else:
            weights = scores.softmax(-1).nan_to_num(0.0)
        return weights @ value

    plan = Request(examples=1, laws=AGREES, pairs=True)
    assert hunt_target(target(kernel), plan).held is False


def test_a_stored_case_is_looked_at_first(tmp_path: Path) -> None:
    """A fault that one drawn case in thousands shows is found again at once."""

    def rare(query: Any, key: Any, value: Any) -> Any:
        out = right(query, key, value)
        return out * 1.5 if key.shape[2] == 61 and query.shape[2] == 7 else out

    from equivalence.case import AttentionCase

    store = FailingCases(folder=tmp_path, target="it")
    store.add([(AGREES[0], AttentionCase(q_len=7, kv_len=61))])
    # Cases of other options and kinds are in the file too, and change nothing.
    store.add([(AGREES[0], AttentionCase(softcap=1.0))])
    request = Request(examples=2, laws=AGREES)
    assert hunt_target(target(rare), request).held is True
    result = hunt_target(target(rare), request, store=store)
    assert result.held is False
    (failure,) = result.failures
    assert (failure.case.q_len, failure.case.kv_len) == (7, 61)
    assert hunt_target(target(right), request, store=store).held is True


@pytest.mark.timeout(300)  # an hour is given, and not used
def test_a_broken_law_is_not_searched_again() -> None:
    searched: list[str] = []

    def wrong(query: Any, key: Any, value: Any) -> Any:
        return right(query, key, value) * 1.5

    def note(progress: Progress) -> None:
        searched.append(progress.target)

    request = Request(examples=5, laws=AGREES)
    result = hunt_target(target(wrong), request, seconds=3600.0, progress=note)
    assert result.held is False
    assert set(searched) == {"it"}


def test_failing_cases_are_shared_by_the_command(run: Run, folder: Path) -> None:
    arguments = ("--law", AGREES[0], "--examples", "30", "--database", "failing")
    assert run("check", "kernels.py:interleaved", *arguments).code == 1
    (file,) = (folder / "failing").iterdir()
    assert "agrees-with-float64 AttentionCase(num_kv_heads=2, group_size=2)" in file.read_text()
    with file.open("a") as lines:
        lines.write("agrees-with-float64 AttentionCase(num_kv")
    finished = run("check", "kernels.py:interleaved", *arguments)
    assert finished.code == 1
    assert "ends before its end of line" in finished.out


@pytest.mark.slow  # tests/cli/test_terminals.py has one that is not
def test_ctrl_c_stops_with_what_is_known(
    start: Callable[..., subprocess.Popen[str]], folder: Path
) -> None:
    arguments = ("check", "kernels.py:slow", "--hunt", "300", "--json", "report.json")
    process = start(*arguments, "--law", AGREES[0], "--examples", "20")
    started = folder / "searching"
    while not started.exists() and process.poll() is None:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "kernels.py:slow holds: " in out
    assert "(interrupted: this is what was known)" in out
    report = from_json((folder / "report.json").read_bytes())
    assert report.interrupted
    assert report.targets[0].laws[0].examples >= 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--hunt", "0"), "--hunt 0.0 must be a number above 0"),
        (("--hunt", "soon"), "'soon' is not a number"),
        (("--profile", "weekly"), "--profile weekly is not one of dev, ci, nightly"),
        (("--database", "kernels.py"), "--database kernels.py cannot be written"),
    ],
)
def test_a_wrong_request_gets_one_line(run: Run, arguments: tuple[str, ...], said: str) -> None:
    finished = run("check", "kernels.py:right", *arguments)
    assert (finished.code, finished.out) == (2, "")
    assert said in finished.err
    assert finished.err.count("\n") == 1
