"""How many checks a second one core makes on attention, and how much of the time is ours.

    OMP_NUM_THREADS=1 python -m benchmarks.throughput

A check is one distinct (case, law), judged non-vacuously. The harness's own share is the time
outside the calls of the target: drawing, inputs, float64 reference, bound, comparison. The
last column is the rate if the target took no time at all.

The last line says how fast the machine is at what a check at these sizes is made of, calls of small
functions: one addition of Python, of numpy and of torch. Rates of two machines compare by it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from timeit import Timer
from typing import Any

import numpy as np
import torch

from equivalence.declaration import Declaration
from equivalence.engine import Request, check_target
from equivalence.outcome import Outcome, Target
from equivalence.registry import entries

BACKENDS = ("torch.repeat_kv", "torch.sdpa_gqa", "torch.grouped_matmul", "numpy.split_kv")


@dataclass(slots=True)
class Timed:
    """A target that counts its calls and the time inside them."""

    target: Target
    seconds: float = 0.0
    calls: int = 0
    name: str = field(init=False)

    def __post_init__(self) -> None:
        self.name = self.target.name

    @property
    def declaration(self) -> Declaration:
        return self.target.declaration

    @property
    def options(self) -> Mapping[str, str]:
        return self.target.options

    def call(self, inputs: Any, **more: Any) -> Outcome:
        start = time.perf_counter()
        outcome = self.target.call(inputs, **more)
        self.seconds += time.perf_counter() - start
        self.calls += 1
        return outcome

    def supports(self, case: Any) -> bool | str:
        return self.target.supports(case)

    def close(self) -> None:
        self.target.close()


def main() -> None:
    print(
        f"{'backend':<22}{'checks':>8}{'s (cpu)':>9}{'checks/s':>10}{'calls':>8}{'ours':>7}"
        f"{'ours/s':>8}"
    )
    torch.set_num_threads(1)
    for name in BACKENDS:
        timed = Timed(entries()[name].load())
        check_target(timed, Request(examples=5))  # imports and first calls are not counted
        timed.seconds, timed.calls = 0.0, 0
        wall, cpu = time.perf_counter(), time.thread_time()
        result = check_target(timed, Request(examples=150, seed=1))
        wall, cpu = time.perf_counter() - wall, time.thread_time() - cpu
        checks = result.shares.checks
        ours = 1 - timed.seconds / wall
        print(
            f"{name:<22}{checks:>8}{cpu:>9.1f}{checks / cpu:>10.0f}{timed.calls:>8}{ours:>7.0%}"
            f"{checks / (cpu * ours):>8.0f}"
        )
        shares = ", ".join(f"{k} {v:.3g}" for k, v in result.shares.summary().items())
        print(f"    {shares}")
    print(f"this machine, each of one addition: {', '.join(additions())}")


def additions() -> Iterator[str]:
    """What one addition takes in Python, numpy and torch, the fastest of nine rounds."""
    start = {"a": 1, "x": np.ones(4), "t": torch.ones(4)}
    for name, code in {"Python": "a + a", "numpy": "x + x", "torch": "t + t"}.items():
        clock = Timer(code, globals=start, timer=time.thread_time)
        loops = 20_000
        yield f"{name} {min(clock.repeat(9, loops)) / loops * 1e9:.0f} ns"


if __name__ == "__main__":
    main()
