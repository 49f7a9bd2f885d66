"""A Ctrl-C that cannot get lost.

Python drops what is raised inside a callback of its garbage collector, and Hypothesis has one: a
KeyboardInterrupt that lands there is printed and forgotten. So the command remembers the signal,
and a search asks for it before every case.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Final

_asked: Final = threading.Event()


def remember_interrupts() -> None:
    """From now on SIGINT raises KeyboardInterrupt as ever, and is remembered."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _remember)


def raise_if_interrupted() -> None:
    """Raise the KeyboardInterrupt that got lost, if there is one."""
    if _asked.is_set():
        raise KeyboardInterrupt


def _remember(number: int, frame: FrameType | None) -> None:
    _asked.set()
    signal.default_int_handler(number, frame)
