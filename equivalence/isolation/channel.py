"""Whole messages over a stream socket, with a time limit on each step."""

from __future__ import annotations

import socket
import struct
import time
from typing import Final

HEADER: Final = struct.Struct("!Q")
GREEDY: Final = 1 << 16
LARGEST: Final = 1 << 36
CUT_OFF: Final = 71  # exit code of a worker whose connection was closed under it


class Channel:
    """A stream socket that carries messages, each with its length in front."""

    def __init__(self, stream: socket.socket) -> None:
        self.socket = stream

    def fileno(self) -> int:
        """The descriptor of the socket."""
        return self.socket.fileno()

    def send(self, payload: bytes, deadline: float | None = None) -> None:
        """Send one message. Raises TimeoutError past ``deadline`` (of time.monotonic())."""
        self._limit(deadline)
        header = HEADER.pack(len(payload))
        if len(payload) < GREEDY:
            self.socket.sendall(header + payload)
        else:
            self.socket.sendall(header)
            self.socket.sendall(payload)

    def receive(self, deadline: float | None = None) -> bytearray:
        """The next message. Raises EOFError at the end, TimeoutError past ``deadline``."""
        # The two sides take turns, so a greedy read never holds part of a further message.
        self._limit(deadline)
        start = self.socket.recv(GREEDY)
        while 0 < len(start) < HEADER.size:
            more = self.socket.recv(GREEDY)
            if not more:
                raise EOFError
            start += more
        if not start:
            raise EOFError
        (length,) = HEADER.unpack_from(start)
        if length > LARGEST:
            raise EOFError
        body = bytearray(length)
        filled = len(start) - HEADER.size
        body[:filled] = start[HEADER.size :]
        with memoryview(body) as view:
            while filled < length:
                count = self.socket.recv_into(view[filled:])
                if count == 0:
                    raise EOFError
                filled += count
        return body

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()

    def _limit(self, deadline: float | None) -> None:
        left = None if deadline is None else max(1e-3, deadline - time.monotonic())
        self.socket.settimeout(left)
