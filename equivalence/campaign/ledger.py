"""The ledger of a campaign: JSON lines, only ever appended to, that outlive their writer.

    {"ledger": 1, "plan": {...}}                                     the first line
    {"shard": "0:torch.sdpa:0", "report": {...}, "seconds": 29.5}     one line a finished shard

A line is one write, and what is not a whole line was never finished: a reader names and skips it,
and a writer that goes on puts an end of line first. A lock keeps two writers apart.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, Self

import msgspec

from equivalence.errors import InvalidRequest
from equivalence.report.schema import ReportJson

SCHEMA: Final = 1
LONGEST_LINE: Final = 64 * 2**20
HEAD: Final = b'{"ledger":'


class RawJson(msgspec.Struct, frozen=True, kw_only=True):
    """A failing case as a shard found it: not shrunk, and named only as far as that goes."""

    law: str
    dtype: str
    case: str
    trouble: str
    diagnosis: str


class LineJson(msgspec.Struct, frozen=True, kw_only=True):
    """A finished shard; ``lost`` says why one was given up, with an empty report."""

    shard: str
    report: ReportJson
    seconds: float
    attempts: int = 1
    explains: list[str] = []
    found: list[RawJson] = []
    lost: str = ""


class HeadJson(msgspec.Struct, frozen=True, kw_only=True):
    """The first line; the plan is read by whoever goes on with it."""

    ledger: int
    plan: dict[str, Any]


def is_ledger(path: Path) -> bool:
    """Whether a file starts as a ledger does; raises InvalidRequest where it cannot be read."""
    with _opened(path) as file:
        return file.read(len(HEAD)) == HEAD


def head_of(path: Path) -> HeadJson:
    """The first line of a ledger; raises InvalidRequest, in one line, for any other file."""
    with _opened(path) as file:
        first = file.readline(LONGEST_LINE)
    try:
        head = msgspec.json.decode(first, type=HeadJson)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        said = " ".join(str(error).split())[:200]
        raise InvalidRequest(f"{path} is not a ledger of `equivalence campaign`: {said}") from None
    if head.ledger != SCHEMA:
        newer = ", which a newer version wrote" if head.ledger > SCHEMA else ""
        shown = head.ledger if abs(head.ledger) < 10**9 else "a huge number"
        raise InvalidRequest(f"{path} has schema {shown}{newer}; this version reads {SCHEMA}")
    return head


def lines_of(path: Path, remark: Callable[[str], None]) -> Iterator[LineJson]:
    """Every whole line after the first; ``remark`` is told of each that cannot be read."""
    head_of(path)
    decoder = msgspec.json.Decoder(LineJson)
    with _opened(path) as file:
        file.readline(LONGEST_LINE)
        for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE), b""), 2):
            if not line.endswith(b"\n"):
                where = f"{path} line {number}"
                remark(f"{where} ends before its end of line (a run died there): ignored")
                continue
            if not line.strip():
                continue
            try:
                found = decoder.decode(line)
            except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
                said = " ".join(str(error).split())[:120]
                remark(f"{path} line {number} cannot be read and is ignored: {said}")
                continue
            yield found


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        why = (error.strerror or type(error).__name__).lower()
        raise InvalidRequest(f"{path} cannot be read: {why}") from None


@dataclass(slots=True)
class Ledger:
    """A ledger that is open for appending, by one process at a time."""

    path: Path
    _file: int

    @classmethod
    def open(cls, path: Path, plan: dict[str, Any] | None) -> Self:
        """A new ledger with ``plan``, or for None one that is there already.

        Raises InvalidRequest where a new one would overwrite something, an old one is missing, or
        another process writes to it.
        """
        flags = os.O_RDWR | os.O_APPEND | (os.O_CREAT | os.O_EXCL if plan is not None else 0)
        try:
            file = os.open(path, flags, 0o666)
        except FileExistsError:
            raise InvalidRequest(
                f"{path} is there already: --resume goes on with it, --ledger names another"
            ) from None
        except OSError as error:
            raise _unwritable(path, error) from None
        ledger = cls(path, file)
        try:
            ledger._lock()
            if plan is not None:
                ledger._append({"ledger": SCHEMA, "plan": plan})
            else:
                ledger._end_last_line()
        except BaseException:
            ledger.close()
            raise
        return ledger

    def add(self, line: LineJson) -> None:
        """Append a finished shard; it is on the disk when this returns."""
        self._append(line)

    def close(self) -> None:
        """Let others write."""
        os.close(self._file)

    def _lock(self) -> None:
        import fcntl

        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InvalidRequest(f"{self.path} is being written by another campaign") from None

    def _end_last_line(self) -> None:
        size = os.fstat(self._file).st_size
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            self._write(b"\n")

    def _append(self, content: Any) -> None:
        self._write(msgspec.json.encode(content) + b"\n")

    def _write(self, whole: bytes) -> None:
        try:
            written = os.write(self._file, whole)
            if written < len(whole):
                raise OSError(28, "No space left on device")
            os.fsync(self._file)
        except OSError as error:
            if error.errno != 22:  # a device or a pipe has nothing to sync
                raise _unwritable(self.path, error) from None


def _unwritable(path: Path, error: OSError) -> InvalidRequest:
    why = (error.strerror or type(error).__name__).lower()
    return InvalidRequest(f"the ledger {path} cannot be written: {why}; --resume goes on from it")
