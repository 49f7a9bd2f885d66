"""Checks of latent attention per second and core, at the sizes that are drawn by default.

    OMP_NUM_THREADS=1 python -m benchmarks.throughput_mla

A check is one distinct (case, law) judged non-vacuously; seconds are those of this thread.
"""

from __future__ import annotations

import time

import torch

from equivalence.engine import Request, check_target
from equivalence.registry import entries

BACKENDS = ("mla.full_sequence", "mla.absorbed", "mla.q_fold", "mla.sdpa", "mla.split_kv")


def main() -> None:
    """Print one line for each backend and dtype."""
    torch.set_num_threads(1)
    print("| backend | dtype | checks | seconds | checks a second |")
    print("|---|---|---:|---:|---:|")
    for name in BACKENDS:
        target = entries()[name].load()
        for dtype in ("float32", "bfloat16"):
            check_target(target, Request(examples=5, dtypes=(dtype,)))  # imports and caches
            start = time.thread_time()
            result = check_target(target, Request(examples=120, dtypes=(dtype,), seed=7))
            seconds = time.thread_time() - start
            checks = result.shares.checks
            rate = checks / seconds
            print(f"| {name} | {dtype} | {checks} | {seconds:.2f} | {rate:.0f} |", flush=True)


if __name__ == "__main__":
    main()
