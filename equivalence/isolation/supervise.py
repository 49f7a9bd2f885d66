"""One exchange with a worker under a time and a memory limit, and how a worker ended."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import statistics
import sysconfig
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

from equivalence.isolation import wire
from equivalence.isolation.channel import CUT_OFF
from equivalence.isolation.spawning import Worker
from equivalence.outcome import OutcomeStatus

GIB: Final = 1 << 30
FIRST_LOOK: Final = 0.02
EACH_LOOK: Final = 0.05
MOST_OUTPUT: Final = 64 << 20
TAIL: Final = 16 << 10
_PACKAGE: Final = str(Path(__file__).parents[1])
_LIBRARIES: Final = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})
_FRAME: Final = re.compile(r'^  File "(.+)", line (\d+) in (.+)$', re.MULTILINE)
_TRACE: Final = re.compile(
    r"^(Fatal Python error|Current thread|Stack \(most recent)", re.MULTILINE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one call may take.

    seconds: for a call; after a first hang :class:`Pace` lowers it. memory: bytes beyond what
    the worker held once the target was imported. import_seconds: for importing the target, with
    whatever it compiles on the way.
    """

    seconds: float = 10.0
    memory: int = 4 * GIB
    import_seconds: float = 120.0


@dataclass(slots=True)
class Pace:
    """The time limit of the next call, in seconds.

    Shrinking a hang repeats it many times, so after the first one the limit falls to
    max(1 s, 20 x the median call, 2 x the slowest), never above the limit that was set.
    """

    limit: float
    hung: bool = False
    slowest: float = 0.0
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=255))

    @property
    def seconds(self) -> float:
        """The limit of the next call."""
        if not self.hung:
            return self.limit
        median = statistics.median(self.recent) if self.recent else 0.0
        return min(self.limit, max(1.0, 20.0 * median, 2.0 * self.slowest))

    def took(self, seconds: float) -> None:
        """Note a call that came back."""
        self.recent.append(seconds)
        self.slowest = max(self.slowest, seconds)


class Ended(Exception):
    """The worker is no more, or had to be killed."""

    def __init__(self, status: OutcomeStatus, text: str) -> None:
        super().__init__(text)
        self.status: Final[OutcomeStatus] = status
        self.text: Final = text


def exchange(
    worker: Worker, message: wire.Message, *, seconds: float, resident: int, memory: int
) -> wire.Message:
    """Send ``message`` and return the answer. Raises Ended, the worker then being dead.

    ``resident`` is the memory that the worker held at its start and ``memory`` how much more it
    may hold, both in bytes.
    """
    start = time.monotonic()
    deadline = start + seconds
    try:
        worker.channel.send(wire.encode(message), deadline)
        _await_answer(worker, start, deadline, resident, memory)
        return wire.decode(worker.channel.receive(deadline))
    except TimeoutError:
        raise Ended("hung", _hang(worker, seconds)) from None
    except (EOFError, OSError):
        raise Ended("died", _death(worker)) from None
    except ValueError:  # msgspec.DecodeError
        worker.kill()
        raise Ended("died", "wrote into the connection of its worker process") from None


def _await_answer(
    worker: Worker, start: float, deadline: float, resident: int, memory: int
) -> None:
    waiting = select.poll()
    for descriptor in worker.watched():
        waiting.register(descriptor, select.POLLIN | select.POLLHUP)
    look = start + FIRST_LOOK
    watched: psutil.Process | None = None
    while True:
        until = min(look, deadline)
        ready = waiting.poll(max(0.0, until - time.monotonic()) * 1e3)
        if ready:
            if all(descriptor != worker.channel.fileno() for descriptor, _ in ready):
                raise EOFError
            return
        if time.monotonic() >= deadline:
            raise TimeoutError
        look = time.monotonic() + EACH_LOOK
        with contextlib.suppress(psutil.Error):
            watched = watched or psutil.Process(worker.pid)
            more = watched.memory_info().rss - resident
            if more > memory:
                worker.kill()
                raise Ended(
                    "memory",
                    f"used {_size(more)} more than at its start, above the limit of "
                    f"{_size(memory)}",
                )
        if os.fstat(worker.output.fileno()).st_size > MOST_OUTPUT:
            os.ftruncate(worker.output.fileno(), 0)


def _size(count: int) -> str:
    return f"{count / GIB:.2f} GiB" if count >= GIB else f"{count >> 20} MiB"


def _hang(worker: Worker, seconds: float) -> str:
    if worker.exit_code() is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker.pid, signal.SIGUSR1)  # its Python stack, if it can still write one
        worker.exit_code(timeout=0.1)
    where, _ = last_words(tail_of(worker))
    worker.kill()
    return f"no answer after {seconds:.3g} s{where}"


def _death(worker: Worker) -> str:
    code = worker.exit_code(timeout=2.0)
    where, words = last_words(tail_of(worker))
    worker.kill()
    if code is None or code == CUT_OFF:
        return "closed the connection of its worker process"
    if code >= 0:
        how = f"ended its process with exit code {code}"
    else:
        how = f"killed by {_signal_name(-code)}"
        if -code == signal.SIGKILL:
            how += " (by the system, perhaps for want of memory)"
    return f"{how}{where}{f': {words}' if words else ''}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def tail_of(worker: Worker) -> str:
    """The end of what the worker wrote to standard output and error."""
    descriptor = worker.output.fileno()
    start = max(0, os.fstat(descriptor).st_size - TAIL)
    return os.pread(descriptor, TAIL, start).decode("utf-8", "replace")


def last_words(output: str) -> tuple[str, str]:
    """``" in f, file.py line 3"`` of the newest stack in ``output``, and its last other lines."""
    traces = list(_TRACE.finditer(output))
    said = output[: traces[0].start()] if traces else output
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    words = "; ".join(lines[-2:])
    if len(words) > 200:
        words = f"...{words[-197:]}"
    frames = _FRAME.findall(output[traces[-1].start() :]) if traces else []
    outside = [frame for frame in frames if not frame[0].startswith((_PACKAGE, *_LIBRARIES))]
    if not outside:
        return "", words
    file, line, function = outside[0]
    return f" in {function}, {Path(file).name} line {line}", words
