"""Where shards run: processes of this machine, or the workers of a Dask cluster."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from typing import Any, Final, Protocol, TypeVar

from equivalence.errors import InvalidRequest

Given = TypeVar("Given")
Made = TypeVar("Made")

CONNECT_SECONDS: Final = 10
FINISH_SECONDS: Final = 5.0
MISSING: Final = "--scheduler needs Dask: pip install 'attention-equivalence[dask]'"


class Pool(Protocol):
    """Something that runs shards; ``size`` of them at a time."""

    @property
    def size(self) -> int:
        """How many shards run at the same time."""
        ...

    def submit(self, work: Callable[[str], str], text: str) -> Future[str]:
        """Run one shard."""
        ...

    def mend(self) -> None:
        """Make it usable again after a worker was lost."""
        ...

    def close(self) -> None:
        """Let go of the workers without waiting for them."""
        ...


class ExecutorPool:
    """Any executor of :mod:`concurrent.futures`, made again where it breaks."""

    def __init__(self, make: Callable[[], Executor], size: int) -> None:
        self.size: Final = size
        self._make: Final = make
        self._executor = make()

    def submit(self, work: Callable[[Given], Made], given: Given) -> Future[Made]:
        """Run one shard, or any other work that crosses to a process."""
        return self._executor.submit(work, given)

    def mend(self) -> None:
        """A pool of processes cannot be used any more once one of them died."""
        self.close()
        self._executor = self._make()

    def finish(self) -> None:
        """Let the workers, which have nothing to do, end by themselves and tidy up, for a while."""
        idle = self._let_go()
        until = time.monotonic() + FINISH_SECONDS
        for process in idle:
            process.join(max(0.0, until - time.monotonic()))
            if process.is_alive():
                process.terminate()

    def interrupt(self) -> None:
        """Send every worker what Ctrl-C sends."""
        for process in dict(getattr(self._executor, "_processes", None) or {}).values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGINT)

    def close(self) -> None:
        """Let go of the workers; those that still run a shard are ended."""
        for process in self._let_go():
            process.terminate()

    def _let_go(self) -> list[Any]:
        """Take nothing more; the processes that are there, of which an executor then knows none."""
        processes = list((getattr(self._executor, "_processes", None) or {}).values())
        self._executor.shutdown(wait=False, cancel_futures=True)
        return processes


def processes(size: int, begin: Callable[[], None] | None = None) -> ExecutorPool:
    """Worker processes of this machine; they end when this process ends, however that is.

    begin: what each of them does first, by default :func:`follow_parent`.
    """
    context = multiprocessing.get_context("spawn")

    def make() -> Executor:
        return ProcessPoolExecutor(size, mp_context=context, initializer=begin or follow_parent)

    return ExecutorPool(make, size)


def follow_parent() -> None:
    """In a worker: leave Ctrl-C to the parent, and end when it is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="parent").start()


class DaskPool:
    """The workers of a Dask cluster that is there already; its scheduler retries lost ones."""

    def __init__(self, address: str) -> None:
        try:
            import distributed
        except ImportError:
            raise InvalidRequest(MISSING) from None
        try:
            self._client: Any = distributed.Client(
                address, timeout=CONNECT_SECONDS, set_as_default=False
            )
        except (OSError, ValueError, TimeoutError) as error:
            said = " ".join(str(error).split())[:200] or type(error).__name__
            raise InvalidRequest(f"--scheduler {address} cannot be reached: {said}") from None
        self._executor = self._client.get_executor(pure=False)
        if not self._threads():
            self._client.close()
            raise InvalidRequest(f"--scheduler {address} has no worker")

    def _threads(self) -> int:
        return sum(self._client.nthreads().values())

    @property
    def size(self) -> int:
        """Threads of all workers that are there now."""
        return max(1, self._threads())

    def submit(self, work: Callable[[str], str], text: str) -> Future[str]:
        """Run one shard."""
        future: Future[str] = self._executor.submit(work, text)
        return future

    def mend(self) -> None:
        """The scheduler does that."""

    def close(self) -> None:
        """Let go of the cluster, which goes on."""
        self._executor.shutdown(wait=False)
        self._client.close()
