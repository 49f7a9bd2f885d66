"""Time several calls against each other: interleaved rounds, the fastest and the median of each.

A machine that others use slows down and recovers while it is measured. In each round every call
is sampled once, so that what disturbs a round disturbs all of them, and a ratio keeps its value.
CPU time of the thread leaves out the time in which something else had the core.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from equivalence.timing.clocks import ELSEWHERE, Clock, Sample, on_cpu
from equivalence.timing.results import Estimate

ROUNDS: Final = 9
SAMPLE_SECONDS: Final = 2e-3  # a shorter call is repeated so often that a sample takes this long
MOST_LOOPS: Final = 1000
CONTENDED: Final = 1.1  # of the time on the wall to the CPU time of the call

KeyT = TypeVar("KeyT")
Call = Callable[[], Any]


def estimates(
    calls: Mapping[KeyT, Call],
    *,
    rounds: int = ROUNDS,
    threads: int = 1,
    clock: Clock = on_cpu,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[KeyT, Estimate]:
    """The time of each call, in rounds over all of them; every second round runs backwards.

    Each call was made before (it was verified), is clocked once, and then made as often as a
    sample needs.
    """
    loops = {key: _loops(call, clock) for key, call in calls.items()}
    samples: dict[KeyT, list[Sample]] = {key: [] for key in calls}
    order = list(calls)
    for number in range(rounds):
        for key in order if number % 2 == 0 else reversed(order):
            call = calls[key]
            if loops[key] > 1:
                call()  # what came before has taken its cache
            samples[key].append(clock(call, loops[key]))
        progress(number + 1, rounds)
    return {key: estimate(samples[key], loops=loops[key], threads=threads) for key in calls}


def _loops(call: Call, clock: Clock) -> int:
    once = clock(call, 1)
    seconds = max(once.wall if once.device is None else once.device, 1e-9)
    return max(1, min(MOST_LOOPS, math.ceil(SAMPLE_SECONDS / seconds)))


def estimate(samples: Sequence[Sample], *, loops: int, threads: int) -> Estimate:
    """What the samples of one call say; see :class:`Estimate` for whose time is taken."""
    clock, times = _chosen(samples, threads)
    wall = [sample.wall for sample in samples]
    busy = [sample.process / max(1, threads) for sample in samples]
    contended = (
        clock in ("thread", "process")
        and statistics.median(w / max(b, 1e-12) for w, b in zip(wall, busy, strict=True))
        > CONTENDED
    )
    return Estimate(
        clock=clock,
        minimum=min(times),
        median=statistics.median(times),
        spread=statistics.pstdev(map(math.log, times)),
        wall_minimum=min(wall),
        wall_median=statistics.median(wall),
        rounds=len(samples),
        loops=loops,
        contended=contended,
        samples=tuple(times),
    )


def _chosen(samples: Sequence[Sample], threads: int) -> tuple[str, list[float]]:
    on_device = [sample.device for sample in samples if sample.device is not None]
    if len(on_device) == len(samples):
        return "events", [max(seconds, 1e-9) for seconds in on_device]
    if threads > 1:
        return "wall", [max(sample.wall, 1e-9) for sample in samples]
    own, whole = (statistics.median(getattr(s, name) for s in samples)
                  for name in ("thread", "process"))  # fmt: skip
    name = "process" if whole > ELSEWHERE * own else "thread"
    return name, [max(getattr(sample, name), 1e-9) for sample in samples]
