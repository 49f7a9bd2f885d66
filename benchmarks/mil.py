"""What conversions and evaluations cost: fresh shapes a second, and a cached graph against eager.

    python benchmarks/mil.py [--shapes N]

Processor time of this thread, the smallest of nine rounds; one thread. Shapes are small, as in a
search: this is not about the speed of a device.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from equivalence.converters.case import ConverterCase
from equivalence.converters.formulations import FORMULATIONS
from equivalence.converters.inputs import arguments, module_of
from equivalence.coreml.converted import Converted, convert

SIZES = {"num_kv_heads": 2, "group_size": 3, "head_dim": 16, "values": "normal"}


def case_of(name: str, kv_len: int, dtype: str) -> ConverterCase:
    """A case of fuzz size."""
    about = FORMULATIONS[name]
    sizes: dict[str, Any] = {**SIZES, "kv_len": kv_len}
    if about.equal_heads or about.family == "rotary":
        sizes["group_size"] = 1
    if about.family == "mla":
        sizes |= {"num_kv_heads": 1, "latent_dim": 16, "rope_dim": 8}
    if about.family == "attention" and not about.decode:
        sizes["q_len"] = 4
    return ConverterCase(formulation=name, dtype=dtype, **sizes)


def tensors_of(case: ConverterCase) -> list[torch.Tensor]:
    """The tensors of its first call."""
    return [torch.from_numpy(array) for array in arguments(case)[0].values()]


def fastest(call: Callable[[], Any], *, repeats: int = 50) -> float:
    """Seconds of one call."""
    rounds = []
    for _ in range(9):
        start = time.thread_time()
        for _ in range(repeats):
            call()
        rounds.append((time.thread_time() - start) / repeats)
    return min(rounds)


def conversions(route: str, count: int) -> float:
    """Seconds a fresh shape, with the graph compiled for the evaluator."""
    names = ("repeat_kv", "q_fold_prefill", "sdpa_fold", "broadcast", "einsum")
    for name in names:
        case = case_of(name, 3, "float16")
        convert(module_of(case), tensors_of(case), route=route)
    start = time.thread_time()
    for number in range(count):
        case = case_of(names[number % len(names)], 4 + number, "float16")
        convert(module_of(case), tensors_of(case), route=route)
    return (time.thread_time() - start) / count


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", type=int, default=30)
    shapes = parser.parse_args().shapes
    torch.set_num_threads(1)
    for route, count in (("trace", shapes), ("export", max(5, shapes // 3))):
        seconds = conversions(route, count)
        print(f"{route:7} {1 / seconds:6.1f} fresh shapes a second ({1e3 * seconds:.0f} ms each)")
    print(f"\n{'formulation':20}{'dtype':9}{'eager us':>9}{'graph us':>9}{'ratio':>7}")
    for name, about in FORMULATIONS.items():
        if about.family == "cache" and name != "cache_read_only":
            continue
        for dtype in ("float32", "float16"):
            case = case_of(name, 24, dtype)
            given, module = tensors_of(case), module_of(case)
            try:
                converted: Converted = convert(module_of(case), given, target="iOS18")
            except Exception as error:  # what coremltools refuses has no figure
                print(f"{name:20}{dtype:9} refused: {str(error).splitlines()[0][:60]}")
                continue
            with torch.no_grad():
                eager = fastest(lambda m=module, t=given: m(*t))
            graph = fastest(lambda c=converted, t=given: c(*t))
            times = f"{1e6 * eager:9.1f}{1e6 * graph:9.1f}{graph / eager:7.2f}"
            print(f"{name:20}{dtype:9}{times}")


if __name__ == "__main__":
    main()
