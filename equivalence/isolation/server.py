"""A process that has imported the slow libraries and forks a worker whenever it is asked to.

It asks nothing of the program that started it: it does not import that program's main file, it
ignores the terminal, and when the program ends, however it ends, it kills every worker.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import struct
import traceback
import warnings
from collections.abc import Sequence
from typing import Final

PRELOAD: Final = (
    "numpy",
    "ml_dtypes",
    "psutil",
    "equivalence.isolation.worker",
    "equivalence.registry",
    "equivalence.backends.known_callables",
)
STATUS: Final = struct.Struct("!i")


def main(control: socket.socket, libraries: Sequence[str]) -> None:
    """Fork a worker for each request on ``control`` until its other end closes.

    libraries: what else the workers find imported.

    A request carries three descriptors: the worker's socket, the file for its output, and the
    end of a pipe into which its exit code is written. The answer is its process id.
    """
    for module in (*libraries, *PRELOAD):
        with contextlib.suppress(Exception):
            importlib.import_module(module)
    gc.collect()
    gc.freeze()  # or collecting in a worker would copy every page
    woken, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    workers: dict[int, int] = {}
    waiting = select.poll()
    waiting.register(control, select.POLLIN)
    waiting.register(woken, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in waiting.poll()}
        if woken in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(woken, 4096)
            _report_ends(workers)
        if control.fileno() in ready:
            request, descriptors, _, _ = socket.recv_fds(control, 16, 3)
            if not request:
                for worker in workers:
                    kill_group(worker)
                return
            _fork(control, (woken, wake, *workers.values()), descriptors, workers)


def _fork(
    control: socket.socket,
    own: Sequence[int],
    descriptors: Sequence[int],
    workers: dict[int, int],
) -> None:
    stream, output, sentinel = descriptors
    try:
        with warnings.catch_warnings():  # numpy's threads exist, and hold no lock while all waits
            warnings.simplefilter("ignore", DeprecationWarning)
            worker = os.fork()
    except OSError as error:
        for descriptor in descriptors:
            os.close(descriptor)
        control.sendall(STATUS.pack(-(error.errno or 1)))
        return
    if worker == 0:
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            control.close()
            for descriptor in (*own, sentinel):
                os.close(descriptor)
            from equivalence.isolation import settling

            settling.die_with_server()
            become_worker(stream, output)
        except BaseException:  # the worker's own fault; standard error is the captured file
            traceback.print_exc()
        finally:
            os._exit(70)
    workers[worker] = sentinel
    os.close(stream)
    os.close(output)
    control.sendall(STATUS.pack(worker))


def become_worker(stream: int, output: int) -> None:
    """Answer the calls that come over the descriptor ``stream``; does not return."""
    from equivalence.isolation import settling, worker
    from equivalence.isolation.channel import Channel

    settling.lead_own_group()
    worker.serve(Channel(socket.socket(fileno=stream)), output)
    os._exit(0)


def _report_ends(workers: dict[int, int]) -> None:
    while workers:
        try:
            # Not reaped yet, its number cannot belong to another group.
            end = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if end is None:
            return
        kill_group(end.si_pid)
        _, status = os.waitpid(end.si_pid, 0)
        sentinel = workers.pop(end.si_pid, None)
        if sentinel is not None:
            with contextlib.suppress(OSError):
                os.write(sentinel, STATUS.pack(os.waitstatus_to_exitcode(status)))
            os.close(sentinel)


def kill_group(leader: int) -> None:
    """Kill a worker and every process that it started."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(leader, signal.SIGKILL)
