"""How far the ratios of `equivalence time` spread from run to run, on a machine that is busy.

    OMP_NUM_THREADS=1 python -m benchmarks.timing_spread [REPEATS] [HOGS]

Times three formulations at two head counts again and again, with HOGS processes that keep cores
busy, and prints the standard deviation of the logarithm of each ratio: by the estimator of
`equivalence.timing` (CPU time, interleaved rounds, median of the ratios of a round), by the
fastest rounds, and by what the clock on the wall says, one formulation after the other.
"""

from __future__ import annotations

import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch

from equivalence.registry import entries
from equivalence.timing.calls import prepare
from equivalence.timing.estimate import estimates
from equivalence.timing.tensors import normal

NAMES = ("torch.repeat_kv", "torch.grouped_matmul", "torch.fused_grouped")
HEADS = (32, 8)
CONTEXT = 4096
PAIRS = (
    (("torch.repeat_kv", 8), ("torch.fused_grouped", 8)),
    (("torch.grouped_matmul", 32), ("torch.grouped_matmul", 8)),
    (("torch.fused_grouped", 32), ("torch.fused_grouped", 8)),
    (("torch.grouped_matmul", 8), ("torch.fused_grouped", 8)),
)


def main(repeats: int = 10, hogs: int = 2) -> None:
    """Print a line for each ratio."""
    torch.set_num_threads(1)
    calls = {}
    for heads in HEADS:
        operands = {
            "query": normal((1, 32, 1, 128), "float32", (1,)),
            "key": normal((1, heads, CONTEXT, 128), "float32", (2,)),
            "value": normal((1, heads, CONTEXT, 128), "float32", (3,)),
        }
        for name in NAMES:
            calls[name, heads] = prepare(entries()[name].load(), operands, causal=False).call
    with ExitStack() as stack, torch.no_grad():
        for _ in range(hogs):
            busy = subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
            stack.callback(busy.wait)
            stack.callback(busy.kill)
        logs: dict[Any, list[tuple[float, float, float]]] = {pair: [] for pair in PAIRS}
        for _ in range(repeats):
            found = estimates(calls)
            wall = {key: walled(call) for key, call in calls.items()}
            for one, other in PAIRS:
                logs[one, other].append(
                    (
                        math.log(found[one].ratio(found[other])),
                        math.log(found[one].minimum / found[other].minimum),
                        math.log(wall[one] / wall[other]),
                    )
                )
    for (one, other), rows in logs.items():
        ratio = math.exp(statistics.mean(row[0] for row in rows))
        estimator, fastest, naive = (statistics.stdev(column) for column in zip(*rows, strict=True))
        print(
            f"{one[0]} at {one[1]} / {other[0]} at {other[1]}: {ratio:.3g}, "
            f"sd of log {estimator:.3f}; fastest {fastest:.3f}; wall {naive:.3f}"
        )


def walled(call: Callable[[], Any]) -> float:
    """The mean of nine calls in a row by the clock on the wall."""
    call()
    begin = time.perf_counter()
    for _ in range(9):
        call()
    return (time.perf_counter() - begin) / 9


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
