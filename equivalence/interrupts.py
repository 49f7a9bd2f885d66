"""A Ctrl-C that cannot get lost.

Python drops what is raised inside a callback of its garbage collector, and Hypothesis has one: a
KeyboardInterrupt that lands there is printed and forgotten. So the command remembers the signal,
and a search asks for it before every case.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Final

_asked: Final = threading.Event()


@contextlib.contextmanager
def interrupts_remembered() -> Iterator[None]:
    """Inside the block SIGINT raises KeyboardInterrupt as ever, and is remembered."""
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not ours or threading.current_thread() is not threading.main_thread():
        yield  # ignored, somebody else's, or not ours to set
        return
    signal.signal(signal.SIGINT, _remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _asked.clear()


def interrupts_only_remembered() -> None:
    """From now on SIGINT is only remembered: for a process that ends with what it knows."""
    signal.signal(signal.SIGINT, lambda *_: _asked.set())


def raise_if_interrupted() -> None:
    """Raise the KeyboardInterrupt that got lost or was only remembered, if there is one."""
    if _asked.is_set():
        raise KeyboardInterrupt


def _remember(number: int, frame: FrameType | None) -> None:
    _asked.set()
    signal.default_int_handler(number, frame)
