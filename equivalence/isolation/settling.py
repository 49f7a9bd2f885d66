"""What a worker sets up before it imports anything of the user's."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import resource
import signal
import sys
import threading
from typing import Final

PR_SET_PDEATHSIG: Final = 1
# A thread reserves a stack and an arena of malloc when it starts, whether it uses them or not.
PER_THREAD: Final = 136 << 20
QUIET_BELOW: Final = 1 << 20


def lead_own_group() -> None:
    """Leave the terminal's group: Ctrl-C is not for a worker, and its children end with it."""
    with contextlib.suppress(OSError):
        os.setsid()


def die_with_server() -> None:
    """End when the server does, even inside a call that never returns (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def die_at_end_of(descriptor: int) -> None:
    """End when the other end of a pipe closes, that is, when the process that holds it ends."""

    def watch() -> None:
        with contextlib.suppress(OSError):
            os.read(descriptor, 1)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True, name="equivalence-watch").start()


def redirect(output: int) -> None:
    """Put standard output and error into the file ``output``, and an empty standard input."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - they live as long as the process
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        stream = open(  # noqa: SIM115
            descriptor, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def leave_traces(output: int) -> None:
    """Write the Python stack into ``output`` on a crash, and when SIGUSR1 asks for it."""
    faulthandler.enable(file=output, all_threads=False)
    faulthandler.register(signal.SIGUSR1, file=output, all_threads=False)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def keep_short(output: int) -> None:
    """Forget old output once there is much of it."""
    with contextlib.suppress(OSError):
        if os.fstat(output).st_size > QUIET_BELOW:
            os.ftruncate(output, 0)


def limit_memory(more: int) -> None:
    """Let allocations fail once the process has reserved ``more`` bytes than now.

    The parent watches the memory really used; this limit stops one huge allocation before the
    parent could see it. Where the system does not count address space, only the parent watches.
    """
    try:
        import psutil

        threads = os.cpu_count() or 1
        limit = psutil.Process().memory_info().vms + more + threads * PER_THREAD
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        if hard != resource.RLIM_INFINITY:
            limit = min(limit, hard)
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    except (ImportError, OSError, ValueError):
        return
