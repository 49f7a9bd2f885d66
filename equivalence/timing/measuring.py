"""From verified calls to rows: their times, in rounds shared with the readers of the floor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from equivalence.timing.calls import Prepared
from equivalence.timing.clocks import clock_for
from equivalence.timing.estimate import estimates
from equivalence.timing.floor import bandwidth_of, floor_of, readers
from equivalence.timing.results import Allocation, Bandwidth, Row

Progress = Callable[[str, int, int], None]
Measured = tuple[tuple[Row, ...], Bandwidth]


@dataclass(slots=True, kw_only=True)
class Entry:
    """A row in the making: ``prepared`` is None where there is no time, and ``why`` says why.

    weight_bytes: what a call must read beside the cache. For the rest see :class:`Row`.
    """

    subject: str
    dtype: str
    sizes: Mapping[str, int]
    cache_bytes: int
    flops: int
    profile: str
    weight_bytes: int = 0
    prepared: Prepared | None = None
    why: str = ""
    held: bool | None = None
    used: float = 0.0
    allocation: Allocation = field(default_factory=Allocation)
    kernels: Mapping[str, float] = field(default_factory=dict)
    extras: Mapping[str, float] = field(default_factory=dict)


def measured(
    entries: Sequence[Entry],
    *,
    rounds: int,
    threads: int,
    device: str,
    stage: str,
    progress: Progress,
) -> Measured:
    """Time every entry that was verified, against each other and against the two readers."""
    import torch

    calls: dict[Any, Callable[[], Any]] = {
        number: entry.prepared.call
        for number, entry in enumerate(entries)
        if entry.prepared is not None
    }
    reading, about = readers(device)
    with torch.no_grad():
        times = estimates(
            calls | reading,
            rounds=rounds,
            threads=threads,
            clock=clock_for(device),
            progress=partial(progress, stage),
        )
    bandwidth = bandwidth_of(times["memory"], times["cache"], about)
    rows = tuple(
        Row(
            subject=entry.subject,
            dtype=entry.dtype,
            sizes=entry.sizes,
            cache_bytes=entry.cache_bytes,
            flops=entry.flops,
            held=entry.held,
            why=entry.why,
            used=entry.used,
            profile=entry.profile,
            time=times.get(number),
            floor=floor_of(entry.cache_bytes + entry.weight_bytes, bandwidth),
            allocation=entry.allocation,
            kernels=entry.kernels,
            extras=entry.extras,
        )
        for number, entry in enumerate(entries)
    )
    return rows, bandwidth
