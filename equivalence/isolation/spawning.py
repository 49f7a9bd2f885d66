"""Start worker processes: forked off a warm server where that is safe, else fresh ones."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import threading
from typing import IO, Final, Literal

from equivalence.isolation.channel import Channel
from equivalence.isolation.server import STATUS, kill_group

Method = Literal["fork", "spawn"]
# Forking a process that has loaded Apple's frameworks crashes it.
DEFAULT_METHOD: Final[Method] = "fork" if sys.platform == "linux" else "spawn"

# Not `-m`: the child takes over this process's sys.path before it imports anything.
_SERVER: Final = (
    "import json, socket, sys; sys.path[:] = json.loads(sys.argv[2]); "
    "from equivalence.isolation.server import main; "
    "main(socket.socket(fileno=int(sys.argv[1])), sys.argv[3:])"
)
_WORKER: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[4]); "
    "from equivalence.isolation import settling; settling.die_at_end_of(int(sys.argv[3])); "
    "from equivalence.isolation.server import become_worker; "
    "become_worker(int(sys.argv[1]), int(sys.argv[2]))"
)


class Worker:
    """A running worker process, from the outside."""

    def __init__(self, channel: Channel, output: IO[bytes]) -> None:
        self.channel: Final = channel
        self.output: Final = output
        self.pid = 0
        self._sentinel: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._alive: int | None = None
        self._code: int | None = None

    def exit_code(self, timeout: float = 0.0) -> int | None:
        """Its exit code (minus the signal that killed it), or None while it still runs."""
        if self._code is None and self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._code = self._process.wait(timeout)
        elif self._code is None and self._sentinel is not None:
            waiting = select.poll()
            waiting.register(self._sentinel, select.POLLIN | select.POLLHUP)
            if waiting.poll(timeout * 1e3):
                told = os.read(self._sentinel, STATUS.size)
                # No number: the server itself was killed, and its workers with it.
                self._code = STATUS.unpack(told)[0] if len(told) == STATUS.size else -9
        return self._code

    def watched(self) -> list[int]:
        """Descriptors that become readable when it answers or ends."""
        ends = [] if self._sentinel is None else [self._sentinel]
        return [self.channel.fileno(), *ends]

    def kill(self) -> None:
        """Kill it and whatever it started, and release every descriptor."""
        if self.exit_code() is None:
            kill_group(self.pid)
            self.exit_code(timeout=5.0)
        self.channel.close()
        self.output.close()
        for descriptor in (self._sentinel, self._alive):
            if descriptor is not None:
                os.close(descriptor)
        self._sentinel = self._alive = None


def start_worker(method: Method = DEFAULT_METHOD, *, torch: bool = True) -> Worker:
    """A new worker process. Raises RuntimeError where none can be started.

    torch: whether its target takes torch's tensors, so that the server should import torch.
    """
    ours, theirs = socket.socketpair()
    output = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed by Worker.kill
    fcntl.fcntl(output, fcntl.F_SETFL, os.O_APPEND)  # so that it can be cut short meanwhile
    worker = Worker(Channel(ours), output)
    try:
        with theirs:
            if method == "fork":
                worker._sentinel, status = os.pipe()
                try:
                    worker.pid = _fork_off_server(torch, theirs.fileno(), output.fileno(), status)
                finally:
                    os.close(status)
            else:
                worker._process, worker._alive = _spawn(theirs.fileno(), output.fileno())
                worker.pid = worker._process.pid
    except BaseException:
        if worker._sentinel is not None:
            os.close(worker._sentinel)
        ours.close()
        output.close()
        raise
    return worker


def _spawn(stream: int, output: int) -> tuple[subprocess.Popen[bytes], int]:
    watch, alive = os.pipe()
    descriptors = (stream, output, watch)
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", _WORKER, *map(str, descriptors), json.dumps(sys.path)],
            pass_fds=descriptors,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    except OSError as error:
        os.close(alive)
        raise RuntimeError(f"cannot start a worker process: {error}") from error
    finally:
        os.close(watch)
    return process, alive


class _Server:
    """A warm server of this process, which has imported torch or not."""

    def __init__(self, torch: bool) -> None:
        self.control, theirs = socket.socketpair()
        with theirs:
            self.process: Final = subprocess.Popen(
                [
                    *(sys.executable, "-c", _SERVER, str(theirs.fileno()), json.dumps(sys.path)),
                    *(["torch"] if torch else []),
                ],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def fork(self, *descriptors: int) -> int:
        """The process id of a new worker. Raises OSError where there is none."""
        socket.send_fds(self.control, [b"fork"], list(descriptors))
        told = self.control.recv(STATUS.size)
        if len(told) < STATUS.size:
            raise ConnectionError(f"its server ended with exit code {self.process.wait()}")
        pid: int = STATUS.unpack(told)[0]
        if pid < 0:
            raise OSError(-pid, os.strerror(-pid))
        return pid

    def close(self) -> None:
        """Let the server end; it kills its workers."""
        self.control.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=2.0)

    def disown(self) -> None:
        """In a copy of this process: the server is not its own, and must see the other's end."""
        self.control.close()
        self.process.returncode = 0


_lock = threading.Lock()
_servers: Final[dict[bool, _Server]] = {}  # by whether they import torch


def _running_server(torch: bool) -> _Server:
    """One that runs; one with torch, once there is one, serves those that need none too."""
    for known, server in list(_servers.items()):
        if server.process.poll() is not None:
            server.close()
            del _servers[known]
    found = _servers.get(True) or _servers.get(torch)
    if found is None:
        found = _servers[torch] = _Server(torch)
    return found


def _fork_off_server(torch: bool, *descriptors: int) -> int:
    with _lock:
        try:
            return _running_server(torch).fork(*descriptors)
        except ConnectionError:  # it had just died; a new one may live
            pass
        try:
            return _running_server(torch).fork(*descriptors)
        except OSError as error:
            raise RuntimeError(f"cannot start a worker process: {error}") from error


@atexit.register
def _close_servers() -> None:
    while _servers:
        _servers.popitem()[1].close()


def _disown_servers() -> None:
    global _lock
    _lock = threading.Lock()
    while _servers:
        _servers.popitem()[1].disown()


os.register_at_fork(after_in_child=_disown_servers)
