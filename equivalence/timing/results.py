"""What was timed: one row for each formulation, number format and size, and the run around them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

# Two figures of one run differ when their ratio leaves this factor: 4 standard deviations of 0.05,
# which is what the logarithm of a ratio spreads by under load (docs/timings.md).
NOISE: Final = 1.25
CRASHED: Final = "crashed: "  # how the reason of a row without a time then begins


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """One call, in seconds.

    clock: whose time it is: "thread" (CPU time of the calling thread), "process" (of all threads:
    the work is done in others), "wall" (several threads were asked for) or "events" (a GPU's).
    minimum, median: over the rounds, each the mean of ``loops`` calls. spread: standard deviation
    of the logarithm over the rounds. wall_minimum, wall_median: by the clock on the wall.
    contended: other work got in between, so the wall figures say nothing about the kernel.
    samples: one for each round, in the order of the rounds.
    """

    clock: str
    minimum: float
    median: float
    spread: float
    wall_minimum: float
    wall_median: float
    rounds: int
    loops: int
    contended: bool
    samples: tuple[float, ...] = ()

    def ratio(self, other: Estimate) -> float:
        """How many times the other's time this one's is: the median over the rounds they share."""
        pairs = list(zip(self.samples, other.samples, strict=False))
        if not pairs:
            return self.minimum / other.minimum
        return statistics.median(own / theirs for own, theirs in pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """The least time in which this machine reads so many bytes; where: "memory" or "cache"."""

    seconds: float
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """What one call allocates.

    allocated: bytes of all allocations, whether they were freed again or not. peak: the most that
    was held at once beyond what was held before. None where the runtime tells nothing.
    copies: the steps that wrote the cache, or what was made of it, to new storage. shares: the
    steps that gave it another shape in the same storage. traced: whether steps could be seen.
    """

    allocated: int | None = None
    peak: int | None = None
    copied: int = 0
    copies: tuple[str, ...] = ()
    shares: tuple[str, ...] = ()
    traced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One formulation at one size in one format.

    sizes: what the call is about, by the words of a case. cache_bytes: what it must read at least
    (of rotary: the tokens).
    held: whether its answer on the very tensors that were timed is within its bound; without True
    there is no time, and ``why`` says why. used: worst error over allowed error.
    flops: additions and multiplications that the definition needs. kernels: what ran, by its own
    share of the time, the largest first. extras: further figures of a command, by name.
    """

    subject: str
    dtype: str
    sizes: Mapping[str, int]
    cache_bytes: int
    flops: int
    held: bool | None = None
    why: str = ""
    used: float = 0.0
    profile: str = ""
    time: Estimate | None = None
    floor: Floor | None = None
    allocation: Allocation = field(default_factory=Allocation)
    kernels: Mapping[str, float] = field(default_factory=dict)
    extras: Mapping[str, float] = field(default_factory=dict)

    @property
    def materialises(self) -> bool | None:
        """Whether the call writes the cache, or what it makes of it, to memory; None: not known.

        Where no step can be followed, an allocation of half the cache at decode tells it.
        """
        known = self.allocation
        if known.traced:
            return bool(known.copies)
        if known.allocated is None or not self.decode:
            return None
        return 2 * known.allocated >= self.cache_bytes

    def is_about(self, target: str) -> bool:
        """Whether the row is of ``target``; a converter's rows name a formulation as well."""
        return self.subject == target or self.subject.startswith(f"{target} ")

    @property
    def decode(self) -> bool:
        """Whether there is one query for each sequence, over a cache."""
        return "seq_len" not in self.sizes and self.sizes.get("q_len", 1) == 1

    @property
    def over_floor(self) -> float | None:
        """How many times the floor the call takes: about how often the cache is read."""
        if self.time is None or self.floor is None:
            return None
        return self.time.minimum / self.floor.seconds

    @property
    def flops_per_byte(self) -> float:
        """Work for each byte of the cache."""
        return self.flops / max(1, self.cache_bytes)

    @property
    def key(self) -> tuple[Any, ...]:
        """What makes two rows of two runs comparable."""
        return (self.subject, self.dtype, tuple(sorted(self.sizes.items())))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bandwidth:
    """Read bandwidth in bytes a second, measured in this process, in the rounds of the timings.

    memory: with a buffer of ``memory_bytes``, beyond the last-level cache. cache: with one of
    ``cache_bytes``, that stays in it. last_level: size of that cache; assumed: nobody could say.
    """

    memory: float
    cache: float
    memory_bytes: int
    cache_bytes: int
    last_level: int
    assumed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingRun:
    """One run of ``equivalence time``.

    command: decode, prefill, mla, rotary or convert. threads: as asked. machine: what the figures
    depend on. reading: the table in words. remarks: what should be known about the run itself.
    """

    command: str
    when: str
    threads: int
    device: str
    machine: Mapping[str, Any]
    bandwidth: Bandwidth | None
    rows: tuple[Row, ...]
    reading: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_bytes: int = 0
    interrupted: bool = False
