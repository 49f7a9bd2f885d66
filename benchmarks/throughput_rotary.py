"""Checks a second of rotary laws on one core, at the sizes that a search draws.

    OMP_NUM_THREADS=1 python -m benchmarks.throughput_rotary --examples 300

For each dtype, cases are drawn as ``equivalence check`` draws them; drawing is timed apart. Then
every law looks at every case. A check is one (case, law) judged non-vacuously; the time is that of
this thread, median of five rounds with an empty memory of calls and references.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch

from equivalence.kinds import kind_named
from equivalence.laws import all_laws
from equivalence.registry import entries
from equivalence.rope.inputs import rotary_inputs
from equivalence.search import explore

ROUNDS = 5


def main() -> None:
    """Measure and print one line for each backend and dtype."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=int, default=300)
    parser.add_argument("--backend", nargs="+", default=["rotary.torch", "rotary.torch_half"])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    kind = kind_named("rotary")
    for name in arguments.backend:
        target = entries()[name].load()
        domain = kind.trials(target, None).domain
        for dtype in domain.dtypes:
            narrowed = domain.but(dtypes=(dtype,))
            cases: list[Any] = []
            started = time.thread_time()
            explore(kind.strategy(narrowed), cases.append, examples=arguments.examples, seed=0)
            drawing = time.thread_time() - started
            checks, seconds = measure(kind, target, narrowed, cases)
            rate = checks / seconds
            print(
                f"{name:20} {dtype:9} {checks:6,} checks, {rate:6,.0f} a second; "
                f"drawing {1e3 * drawing / len(cases):.2f} ms a case, "
                f"{checks / (seconds + drawing):6,.0f} a second with it"
            )


def measure(kind: Any, target: Any, domain: Any, cases: list[Any]) -> tuple[int, float]:
    """Checks of one round, and the median seconds of a round."""
    times, checks = [], 0
    for _ in range(ROUNDS):
        rotary_inputs.cache_clear()
        subject = kind.subject(target, domain)
        checks, seen = 0, set()
        started = time.thread_time()
        for case in cases:
            for law in all_laws("rotary"):
                adapted = law.adapt(case, domain)
                if adapted is None or (law.name, adapted) in seen:
                    continue
                seen.add((law.name, adapted))
                checks += law.check(adapted, subject).status == "held"
        times.append(time.thread_time() - started)
    return checks, statistics.median(times)


if __name__ == "__main__":
    main()
