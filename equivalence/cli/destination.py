"""Where a report goes: checked before the run, written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from equivalence.errors import InvalidRequest

STDOUT: Final = "-"


@contextlib.contextmanager
def stdout_kept_for(path: str | None) -> Iterator[None]:
    """Inside the block, and where ``path`` is ``-``, whatever is printed goes to stderr.

    That holds for the file descriptor too: a kernel in this process may print from C.
    """
    if path != STDOUT:
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def require_writable(outputs: Mapping[str, str | Path | None]) -> None:
    """Refuse a path that a later write would fail on, and one that two options name.

    outputs: option -> where it goes, None where it was not given. Leaves nothing behind.
    """
    taken: dict[str, str] = {}
    for option, given in outputs.items():
        if given is None:
            continue
        path = str(given)
        _require_writable(option, path)
        place = path if path == STDOUT else str(Path(path).resolve())
        if place != STDOUT and Path(place).exists() and not Path(place).is_file():
            continue  # a device takes from both
        if place in taken:
            raise InvalidRequest(
                f"{taken[place]} and {option} both write to {path}; name a place for each"
            )
        taken[place] = option


def _require_writable(option: str, path: str) -> None:
    if path == STDOUT:
        return
    target = Path(path)
    if target.is_dir():
        raise InvalidRequest(f"{option} {path} is a folder; name a file in it")
    if target.exists() and not target.is_file():
        return  # a device or a pipe
    if not target.parent.is_dir():
        raise InvalidRequest(f"{option} {path}: there is no folder {target.parent}")
    if target.exists() and not os.access(target, os.W_OK):
        raise InvalidRequest(f"{option} {path}: the file may not be written")
    try:
        with tempfile.TemporaryFile(dir=target.parent):
            pass
    except OSError as error:
        raise _unwritable(option, path, error) from None


def require_folder(option: str, path: Path) -> None:
    """Make the folder ``path`` if need be; refuse one that cannot be made or written."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise _unwritable(option, str(path), error) from None


def write_whole(option: str, path: str, text: str) -> None:
    """Write ``text`` to ``path``, or to stdout for ``-``; a reader never sees half of it."""
    if path == STDOUT:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    target = Path(path)
    if target.exists() and not target.is_file():  # a device or a pipe cannot be replaced
        try:
            target.write_text(text, encoding="utf-8")
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _unwritable(option, path, error) from None
        return
    unfinished = ""
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=target.parent, prefix=f".{target.name}.", delete=False
        ) as file:
            unfinished = file.name
            file.write(text)
        mode = target.stat().st_mode & 0o7777 if target.exists() else 0o666 & ~_umask()
        os.chmod(unfinished, mode)
        os.replace(unfinished, target)
    except OSError as error:
        Path(unfinished).unlink(missing_ok=True) if unfinished else None
        raise _unwritable(option, path, error) from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _unwritable(option: str, path: str, error: OSError) -> InvalidRequest:
    why = (error.strerror or type(error).__name__).lower()
    return InvalidRequest(f"{option} {path} cannot be written: {why}")
