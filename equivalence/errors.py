"""The few exceptions of the package, and what each one means to the person who sees it."""

from __future__ import annotations


class Unsupported(Exception):
    """Raised by a kernel that refuses a case; the case is counted as refused, with this text."""


class InvalidRequest(ValueError):
    """The request itself was wrong (exit code 2); the text is one line that names the value."""


def require(condition: bool, message: str) -> None:
    """Refuse a bad argument at the door: raise :class:`InvalidRequest` unless ``condition``."""
    if not condition:
        raise InvalidRequest(message)
