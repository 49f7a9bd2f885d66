"""The estimator: a known ratio comes out although the machine is busy, slows down, or is noisy."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from equivalence.timing.clocks import Sample, on_cpu
from equivalence.timing.estimate import estimate, estimates


@pytest.fixture
def hog() -> Iterator[None]:
    """Another process that keeps a core busy."""
    busy = subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
    yield
    busy.kill()
    busy.wait()


@pytest.mark.slow  # it measures: only a machine of one's own makes it certain
@pytest.mark.usefixtures("hog")
def test_a_ratio_of_two_is_recovered_with_a_hog_on_the_other_core():
    x = torch.linspace(0.1, 0.9, 64)

    def work(times: int) -> Callable[[], Any]:
        def call() -> None:
            for _ in range(times):
                torch.sin(x)

        return call

    found = estimates({"once": work(400), "twice": work(800)}, rounds=15)
    assert found["twice"].ratio(found["once"]) == pytest.approx(2.0, rel=0.1)
    assert found["twice"].minimum / found["once"].minimum == pytest.approx(2.0, rel=0.1)
    assert found["once"].clock == "thread"


@dataclass
class Machine:
    """A machine whose calls cost what their number says, times what it suffers from."""

    slowdown: Callable[[int], float]
    taken: int = 0

    def __call__(self, call: Callable[[], Any], loops: int) -> Sample:
        self.taken += 1
        seconds = call() * self.slowdown(self.taken)
        return Sample(thread=seconds, process=seconds, wall=3 * seconds)


CALLS = {"fast": lambda: 0.1, "slow": lambda: 0.2}


def test_a_machine_that_slows_down_changes_no_ratio():
    found = estimates(CALLS, rounds=9, clock=Machine(lambda taken: 1.05**taken))
    assert found["slow"].ratio(found["fast"]) == pytest.approx(2.0, rel=0.06)
    # One after the other, the second would get all of the slowdown.
    apart = {
        name: estimates({name: CALLS[name]}, rounds=9, clock=Machine(lambda taken: 1.05**taken))
        for name in CALLS
    }
    later = estimates(CALLS, rounds=9, clock=Machine(lambda t: 1.0 if t < 20 else 2.0))
    assert later["slow"].ratio(later["fast"]) == pytest.approx(2.0, rel=0.06)
    assert apart["fast"]["fast"].spread > 0.1


def test_outliers_move_neither_the_fastest_nor_a_ratio():
    noise = random.Random(3)
    machine = Machine(lambda taken: 10.0 if noise.random() < 0.2 else 1.0)
    found = estimates(CALLS, rounds=15, clock=machine)
    assert found["fast"].minimum == pytest.approx(0.1)
    assert found["slow"].ratio(found["fast"]) == pytest.approx(2.0)
    assert found["fast"].contended, "the wall clock ran three times as long"


def test_a_ratio_of_two_is_recovered_beside_a_neighbour_that_comes_and_goes():
    noise = random.Random(5)
    caches = [1.0 + 0.3 * noise.random() for _ in range(40)]  # what the other's work costs ours
    machine = Machine(lambda taken: caches[taken // 2])  # it stays for about a round
    found = estimates(CALLS, rounds=15, clock=machine)
    assert found["slow"].ratio(found["fast"]) == pytest.approx(2.0, rel=0.05)
    assert found["slow"].minimum / found["fast"].minimum == pytest.approx(2.0, rel=0.05)
    assert found["fast"].clock == "thread"


def test_a_short_call_is_repeated_and_a_long_one_is_not():
    found = estimates(
        {"short": lambda: 1e-5, "long": lambda: 0.1}, rounds=3, clock=Machine(lambda _: 1.0)
    )
    assert found["long"].loops == 1
    assert found["short"].loops > 50


def samples(**seconds: float | None) -> list[Sample]:
    known = {"thread": 1.0, "process": 1.0, "wall": 1.0, **seconds}
    return [Sample(**known)] * 3


@pytest.mark.parametrize(
    ("seconds", "threads", "clock", "minimum"),
    [
        ({}, 1, "thread", 1.0),
        ({"process": 4.0, "thread": 0.1, "wall": 4.0}, 1, "process", 4.0),
        ({"process": 4.0, "wall": 2.0}, 2, "wall", 2.0),
        ({"device": 0.5, "thread": 9.0}, 1, "events", 0.5),
    ],
)
def test_whose_time_is_taken(seconds, threads, clock, minimum):
    found = estimate(samples(**seconds), loops=1, threads=threads)
    assert (found.clock, found.minimum) == (clock, minimum)


def test_work_on_another_thread_is_seen():
    import threading

    def call() -> None:
        other = threading.Thread(target=lambda: sum(range(200_000)))
        other.start()
        other.join()

    call()
    sample = on_cpu(call, 3)
    assert sample.process > 2 * sample.thread
