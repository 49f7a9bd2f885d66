"""Seconds until a search that knows nothing first meets each silent fault of coremltools.

    python -m benchmarks.coreml_search [--seeds N] [--examples N]

Both routes, every formulation, kind of shape and deployment target; nothing is pinned. A fault is
met where the law breaks on a case of its formulation. Processor time of this thread.
"""

from __future__ import annotations

import argparse
import os
import time
from contextlib import suppress
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from equivalence.backends.coreml_graph import either_route
from equivalence.kinds import kind_named
from equivalence.law_search import LawSearch
from equivalence.laws import all_laws
from equivalence.planned_cases import planned_cases
from equivalence.request import Request
from equivalence.search import explore

FAULTS = {
    "head-mapping: sdpa_gqa, flexible length": ("outside-bound", ("sdpa_gqa",)),
    "dropped-op: cache_indexed, trace": ("positions", ("cache_indexed",)),
    "fully-masked-row": ("masked-rows", None),
}


class Done(KeyboardInterrupt):
    """Every fault was met."""


def met(seed: int, examples: int) -> dict[str, tuple[int, float]]:
    """Fault -> (examples, seconds) until it was first met."""
    kind = kind_named("converter")
    target = kind.open(either_route, "either_route", {})
    domain = kind.trials(target, ("float16",)).domain
    laws = list(all_laws("converter"))
    request = Request(examples=examples, seed=seed)
    search = LawSearch(target, domain, laws, request)
    found: dict[str, tuple[int, float]] = {}
    start, count = time.thread_time(), 0

    def visit(case: Any) -> None:
        nonlocal count
        count += 1
        for law in laws:
            adapted = law.adapt(case, domain)
            trouble = None if adapted is None else search.verdict(law, adapted).trouble
            for name, (kind_of_trouble, formulations) in FAULTS.items():
                if trouble is None or trouble.kind != kind_of_trouble:
                    continue
                if formulations is None or adapted.formulation in formulations:
                    found.setdefault(name, (count, time.thread_time() - start))
        if len(found) == len(FAULTS):
            raise Done

    with suppress(Done):
        for case in planned_cases(kind, domain, request, seed):
            visit(case)
        explore(kind.strategy(domain), visit, examples=examples - count, seed=seed)
    return found


def main() -> None:
    """Print one line for each seed and fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--examples", type=int, default=400)
    given = parser.parse_args()
    torch.set_num_threads(1)
    for seed in range(given.seeds):
        found = met(seed, given.examples)
        for name in FAULTS:
            count, seconds = found.get(name, (given.examples, float("nan")))
            print(f"seed {seed}  {name:42} example {count:4}  {seconds:6.1f} s", flush=True)


if __name__ == "__main__":
    main()
