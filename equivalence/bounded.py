"""Read a file that somebody wrote, without trusting its size or its contents."""

from __future__ import annotations

from pathlib import Path

from equivalence.errors import InvalidRequest

MIB = 2**20


def read_bytes(path: Path, *, most: int, name: str = "") -> bytes:
    """The bytes of a file, pipe or device; raises InvalidRequest, in one line, beyond ``most``.

    name: how messages call it, its path by default.
    """
    called = name or str(path)
    try:
        with path.open("rb") as file:
            found = file.read(most + 1)
    except OSError as error:
        why = (error.strerror or type(error).__name__).lower()
        raise InvalidRequest(f"{called} cannot be read: {why}") from None
    if len(found) > most:
        raise InvalidRequest(f"{called} is larger than {most // MIB} MiB")
    return found


def read_text(path: Path, *, most: int, name: str = "") -> str:
    """The UTF-8 text of a file; raises InvalidRequest, in one line, for any other."""
    try:
        return read_bytes(path, most=most, name=name).decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidRequest(f"{name or path} is not UTF-8 text") from None
