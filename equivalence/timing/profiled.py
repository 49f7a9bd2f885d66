"""What one call allocates and which kernels run in it: torch's profiler, and Python's for numpy."""

from __future__ import annotations

import math
import os
import tracemalloc
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any, Final

from equivalence.timing.results import Allocation

SHARE: Final = 0.05  # of the time, below which a kernel is not named
CHOSEN: Final = "_scaled_dot_product"  # named whatever its share: it is what SDPA chose
COPYING: Final = {"copy_", "clone"}
PYTHON_NOISE: Final = 2**16  # bytes that a call may take for Python's own objects


def profiled(
    call: Callable[[], Any], operands: Iterable[Any], device: str = "cpu"
) -> tuple[Allocation, Mapping[str, float]]:
    """What one call allocates, which steps copy the cache, and which kernels ran.

    operands: the tensors that hold the cache. Other libraries' memory is not seen: the bytes are
    None, unless the call used torch or numpy after all. Where no step can be followed (compiled
    code), ``traced`` is False, and the bytes are all that is known.
    """
    allocated, peak, profile = _torch_memory(call, device)
    kernels = _kernels(profile, device)
    tensors: list[Any] = [x for x in operands if isinstance(x, _tensor_type())]
    if not tensors or allocated < PYTHON_NOISE:
        in_numpy = _numpy_peak(call)
        if in_numpy >= PYTHON_NOISE:
            allocated, peak = allocated + in_numpy, peak + in_numpy
    if not tensors:
        known = allocated > 0
        seen = Allocation(allocated=allocated if known else None, peak=peak if known else None)
        return seen, kernels
    from equivalence.timing.traced import LARGE, traced

    try:
        steps = traced(call, tensors)
    except Exception:  # compiled code and operators of a higher order refuse every dispatch mode
        return Allocation(allocated=allocated, peak=peak), kernels
    if not steps.reads and not steps.copies and not steps.parts:
        # Nobody read the cache, and yet there was an answer: another runtime was given its memory.
        known = allocated >= PYTHON_NOISE
        return Allocation(
            allocated=allocated if known else None, peak=peak if known else None
        ), kernels
    copies = list(dict.fromkeys(steps.copies))
    copies += _copies_inside(profile, steps.reads, LARGE * steps.elements)
    return Allocation(
        allocated=allocated,
        peak=peak,
        copied=steps.copied,
        copies=tuple(copies),
        shares=tuple(dict.fromkeys(steps.shares)),
        traced=True,
    ), _relevant_first(kernels, {name for name, _ in steps.reads} | COPYING)


def _relevant_first(kernels: Mapping[str, float], relevant: Container[str]) -> dict[str, float]:
    """What reads or copies the cache before the rest: one profile of a busy machine is no ranking
    of small operators.
    """
    return dict(sorted(kernels.items(), key=lambda item: (item[0] not in relevant, -item[1])))


def _copies_inside(
    profile: Any, reads: Container[tuple[str, tuple[tuple[int, ...], ...]]], elements: float
) -> list[str]:
    """Copies that an operator which reads the cache makes inside itself, where no trace looks."""
    found = []
    for event in profile.events():
        if event.name != "aten::copy_" or not event.input_shapes:
            continue
        shape, parent = event.input_shapes[0], event.cpu_parent
        while parent is not None:
            name = parent.name.removeprefix("aten::")
            given = tuple(tuple(one) for one in parent.input_shapes or () if one)
            if (name, given) in reads and math.prod(shape) >= elements:
                found.append(f"copy_ {'x'.join(map(str, shape))} inside {name}")
                break
            parent = parent.cpu_parent
    return list(dict.fromkeys(found))


def _tensor_type() -> type:
    import torch

    return torch.Tensor


def _kernels(profile: Any, device: str) -> dict[str, float]:
    """The kernels that ran and their shares of the time, the largest first.

    On a GPU those of the device; elsewhere torch's operators, each without those inside it.
    """
    on_device = device.partition(":")[0] == "cuda"
    what = "self_device_time_total" if on_device else "self_cpu_time_total"
    times: dict[str, float] = {}
    for event in profile.key_averages():
        if on_device and "CUDA" not in str(event.device_type):
            continue
        times[event.key.removeprefix("aten::")] = float(getattr(event, what))
    total = sum(times.values()) or 1.0
    named = sorted(times.items(), key=lambda item: -item[1])
    return {
        name: seconds / total
        for name, seconds in named
        if seconds / total >= SHARE or name.startswith(CHOSEN)
    }


def _torch_memory(call: Callable[[], Any], device: str) -> tuple[int, int, Any]:
    """Bytes allocated, the most held at once, and the profile."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it writes to stderr from C otherwise
    import torch
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU]
    if device.partition(":")[0] == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with (
        torch.no_grad(),
        profile(activities=activities, profile_memory=True, record_shapes=True) as found,
    ):
        call()
    events = found.profiler.kineto_results.events()
    changes = [(event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]"]
    held = peak = 0
    for _, size in sorted(changes, key=lambda change: change[0]):
        held += size
        peak = max(peak, held)
    return sum(size for _, size in changes if size > 0), peak, found


def _numpy_peak(call: Callable[[], Any]) -> int:
    """The most that Python and numpy held beyond what they held before."""
    if tracemalloc.is_tracing():  # somebody else is looking
        return 0
    tracemalloc.start(1)
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        call()
        return max(0, tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()
