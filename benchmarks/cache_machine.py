"""How long a stateful run of 50 steps takes, for each cache of this package.

python benchmarks/cache_machine.py
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import time

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from equivalence.caches.machine import cache_machine
from equivalence.registry import entries

RUNS = 20


def main() -> None:
    """Print seconds of CPU per run of at most 50 steps, references and bounds included."""
    quiet = settings(
        max_examples=RUNS,
        stateful_step_count=50,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    for name, backend in entries().items():
        if backend.kind != "kv_cache" or backend.available() is not True:
            continue
        machine = cache_machine(backend.load().function)
        start = time.thread_time()
        run_state_machine_as_test(machine, settings=quiet)
        print(f"{name:28s} {(time.thread_time() - start) / RUNS:.4f} s")


if __name__ == "__main__":
    main()
