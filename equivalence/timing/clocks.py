"""Clocks: of the calling thread, of the process, on the wall, and of a GPU."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

# CPU time on other threads, beside that of the calling one, that is more than bookkeeping.
ELSEWHERE: Final = 1.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The seconds that one call took, by each clock; ``device`` is None without a GPU."""

    thread: float
    process: float
    wall: float
    device: float | None = None


class Clock(Protocol):
    """Times ``loops`` calls of ``call`` and gives the seconds of one."""

    def __call__(self, call: Callable[[], Any], loops: int) -> Sample:
        """One sample."""
        ...


def on_cpu(call: Callable[[], Any], loops: int) -> Sample:
    """The clocks of this thread, of this process, and on the wall."""
    wall, process, thread = time.perf_counter(), time.process_time(), time.thread_time()
    for _ in range(loops):
        call()
    own = time.thread_time() - thread
    whole = time.process_time() - process
    return Sample(
        thread=own / loops, process=whole / loops, wall=(time.perf_counter() - wall) / loops
    )


def on_cuda(call: Callable[[], Any], loops: int) -> Sample:
    """Events on the current CUDA stream: time on the device, without what Python takes."""
    import torch

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    wall, process, thread = time.perf_counter(), time.process_time(), time.thread_time()
    begin.record()
    for _ in range(loops):
        call()
    end.record()
    torch.cuda.synchronize()
    own = time.thread_time() - thread
    whole = time.process_time() - process
    return Sample(
        thread=own / loops,
        process=whole / loops,
        wall=(time.perf_counter() - wall) / loops,
        device=begin.elapsed_time(end) / 1e3 / loops,
    )


def clock_for(device: str) -> Clock:
    """Events on CUDA, CPU clocks anywhere else."""
    return on_cuda if device.partition(":")[0] == "cuda" else on_cpu
