"""What conversions and evaluations cost: fresh shapes a second, and a cached graph against eager.

    python benchmarks/mil.py [--shapes N]

Processor time of this thread, the least of several rounds; one thread. Shapes are small, as in a
search: this is not about the speed of a device.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from equivalence.converters.case import ConverterCase
from equivalence.converters.formulations import FORMULATIONS
from equivalence.converters.inputs import arguments, module_of
from equivalence.coreml import conversion
from equivalence.coreml.converted import Converted, convert
from equivalence.coreml.quiet import coremltools

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


def fastest(*calls: Callable[[], Any], repeats: int = 20) -> list[float]:
    """Seconds of each call: the least of 25 rounds, in which they take turns."""
    least = [math.inf] * len(calls)
    for _ in range(25):
        for number, call in enumerate(calls):
            start = time.thread_time()
            for _ in range(repeats):
                call()
            least[number] = min(least[number], (time.thread_time() - start) / repeats)
    return least


NAMES = ("repeat_kv", "q_fold_prefill", "sdpa_fold", "broadcast", "einsum")
TORCH = {
    "trace": {"jit.trace": (torch.jit, "trace")},
    "export": {
        "export": (conversion, "exported"),
        "run_decompositions": (conversion, "decomposed"),
    },
}


@contextmanager
def timed(parts: dict[str, tuple[Any, str]]) -> Iterator[dict[str, float]]:
    """Seconds of processor time inside of each function, by the names of ``parts``."""
    spent = dict.fromkeys(parts, 0.0)
    originals = {part: getattr(place, name) for part, (place, name) in parts.items()}

    def wrapped(part: str) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            start = time.thread_time()
            try:
                return originals[part](*given, **named)
            finally:
                spent[part] += time.thread_time() - start

        return call

    for part, (place, name) in parts.items():
        setattr(place, name, wrapped(part))
    try:
        yield spent
    finally:
        for part, (place, name) in parts.items():
            setattr(place, name, originals[part])


def conversions(route: str, count: int) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds a fresh shape by part: torch's, coremltools', and ours, the evaluator among it.

    Those of the fastest of three rounds of ``count`` shapes that were never converted before; then
    the same with all that coremltools does by itself (``equivalence.coreml.conversion.sparing``).
    """
    for name in NAMES:
        case = case_of(name, 3, "float16")
        convert(module_of(case), tensors_of(case), route=route)
    fastest_of: list[dict[str, float]] = [{"ours": math.inf}, {"ours": math.inf}]
    lengths = itertools.count(4)
    for turn in range(6):
        with spared_as((conversion.sparing, nullcontext)[turn % 2]):
            spent = _round(route, count, lengths)
        fastest_of[turn % 2] = min(fastest_of[turn % 2], spent, key=lambda p: sum(p.values()))
    first, second = ({k: v / count for k, v in parts.items()} for parts in fastest_of)
    return first, second


@contextmanager
def spared_as(how: Any) -> Iterator[None]:
    """Conversions spare what ``how`` says."""
    original = conversion.sparing
    conversion.sparing = how
    try:
        yield
    finally:
        conversion.sparing = original


def _round(route: str, count: int, lengths: Iterator[int]) -> dict[str, float]:
    with timed({**TORCH[route], "milinternal": (coremltools(), "convert")}) as spent:
        start = time.thread_time()
        for number in range(count):
            case = case_of(NAMES[number % len(NAMES)], next(lengths), "float16")
            convert(module_of(case), tensors_of(case), route=route)
        spent["ours"] = time.thread_time() - start - sum(spent.values())
    return spent


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", type=int, default=30)
    shapes = parser.parse_args().shapes
    torch.set_num_threads(1)
    for route, count in (("trace", shapes), ("export", max(5, shapes // 3))):
        parts, unspared = conversions(route, count)
        seconds = sum(parts.values())
        print(f"{route:7} {1 / seconds:6.1f} fresh shapes a second ({1e3 * seconds:.0f} ms each)")
        print("        " + ", ".join(f"{name} {1e3 * part:.1f} ms" for name, part in parts.items()))
        inside = parts["milinternal"] + parts["ours"]
        print(f"        {1 / inside:.1f} a second from what torch made to what can be called")
        whole = 1 / sum(unspared.values())
        print(f"        {whole:.1f} fresh shapes a second with nothing of coremltools spared")
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
                eager, graph = fastest(
                    lambda m=module, t=given: m(*t), lambda c=converted, t=given: c(*t)
                )
            times = f"{1e6 * eager:9.1f}{1e6 * graph:9.1f}{graph / eager:7.2f}"
            print(f"{name:20}{dtype:9}{times}")


if __name__ == "__main__":
    main()
