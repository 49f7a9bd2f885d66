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


def said(error: BaseException) -> str:
    """``Type: first line`` of what a target raised."""
    line = str(error).strip().partition("\n")[0].strip()
    return f"{type(error).__name__}: {line}" if line else type(error).__name__


def is_whole(value: object) -> bool:
    """Whether ``value`` is an int, and not a bool, which counts as one in Python."""
    return isinstance(value, int) and not isinstance(value, bool)


def require_size(name: str, value: int, *, lowest: int = 1) -> None:
    """Refuse anything but a whole number of at least ``lowest``, naming the field."""
    least = "must not be negative" if lowest == 0 else f"must be at least {lowest}"
    require(is_whole(value), f"{name}={value!r} is not a whole number")
    require(value >= lowest, f"{name}={value} {least}")
