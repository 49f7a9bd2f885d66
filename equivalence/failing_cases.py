"""Failing cases that several runs share: plain text, a line for each law and case.

    equivalence-failing/kernels.py_flash-1a2b3c4d.txt
        # kernels.py:flash
        agrees-with-float64 AttentionCase(num_kv_heads=2, group_size=2)

A line is added by one write to the end of the file, so runs that share a folder do not mix theirs.
Lines are parsed as replay lines are; nothing is evaluated. What cannot be read is said and skipped.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from equivalence.bounded import read_bytes
from equivalence.errors import InvalidRequest
from equivalence.replay import case_text, parse_case

LARGEST: Final = 16 * 2**20  # bytes of one file that are read
LONGEST_NAME: Final = 60


@dataclass(slots=True, kw_only=True)
class FailingCases:
    """The cases of one target in one folder; ``remarks`` say what could not be read or written."""

    folder: Path
    target: str
    remarks: list[str] = field(default_factory=list)

    @property
    def path(self) -> Path:
        """The file of this target."""
        readable = re.sub(r"[^A-Za-z0-9.]+", "_", self.target).strip("_.")[-LONGEST_NAME:]
        digest = hashlib.sha256(self.target.encode("utf-8", "backslashreplace")).hexdigest()[:8]
        return self.folder / f"{readable}-{digest}.txt"

    def read(self) -> list[tuple[str, Any]]:
        """(law, case) of every line that can be read, without repeats."""
        found: dict[tuple[str, str], tuple[str, Any]] = {}
        text = self._text()
        lines = text.splitlines(keepends=True)
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.startswith("#"):
                continue
            where = f"{self.path} line {number}"
            if not line.endswith("\n"):
                self._remark(f"{where} ends before its end of line (a run died there): ignored")
                continue
            law, _, written = line.strip().partition(" ")
            try:
                found[law, written] = (law, parse_case(written))
            except InvalidRequest as error:
                self._remark(f"{where} is ignored: {error}")
        return list(found.values())

    def add(self, cases: Iterable[tuple[str, Any]]) -> int:
        """Append the (law, case) that are not there yet; how many they were."""
        text = self._text()
        there = set(text.splitlines())
        lines = dict.fromkeys(f"{law} {case_text(case)}" for law, case in cases)
        fresh = [line for line in lines if line not in there]
        if not fresh:
            return 0
        # An end of line goes first where a run died in the middle of one.
        head = "" if not text or text.endswith("\n") else "\n"
        head += "" if text else f"# {' '.join(self.target.split())}\n"
        whole = (head + "".join(f"{line}\n" for line in fresh)).encode("utf-8", "backslashreplace")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            try:
                written = os.write(file, whole)
            finally:
                os.close(file)
            if written < len(whole):
                raise OSError(28, "No space left on device")
        except OSError as error:
            why = (error.strerror or type(error).__name__).lower()
            self._remark(f"{self.path} cannot be written: {why}")
            return 0
        return len(fresh)

    def _text(self) -> str:
        if not self.path.exists():
            return ""
        try:
            return read_bytes(self.path, most=LARGEST).decode("utf-8", "replace")
        except InvalidRequest as error:
            self._remark(f"{error}: ignored")
            return "\n"

    def _remark(self, text: str) -> None:
        if text not in self.remarks:
            self.remarks.append(text)
