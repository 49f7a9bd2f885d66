"""Run a finding's script again, in a process of its own, and say what became of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from equivalence.findings.register import Finding

LIMIT: Final = 240.0
Word = Literal["still so", "fixed", "changed", "not installed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What a script shows today.

    word: "still so", "fixed" (it prints what is expected), "changed" (it prints something else),
    or "not installed". installed: the versions. got: what it printed, or the signal that ended it.
    as_recorded: whether the register says the same: a finding that is not marked as fixed in the
    installed version is still so, and one that is marked is fixed.
    """

    name: str
    word: Word
    installed: str
    got: str
    as_recorded: bool


def rerun(finding: Finding, *, seconds: float = LIMIT) -> Status:
    """Run the script of ``finding``, if its runtime is installed."""
    versions = finding.installed()
    if isinstance(versions, str):
        return Status(
            name=finding.name, word="not installed", installed="", got="", as_recorded=True
        )
    got = _output(finding.script, seconds)
    word: Word = "changed"
    if got == finding.got:
        word = "still so"
    elif got == finding.expected:
        word = "fixed"
    first = next(iter(finding.runtime))
    mended = bool(finding.fixed) and not _older(versions[first], finding.fixed)
    return Status(
        name=finding.name,
        word=word,
        installed=", ".join(f"{name} {number}" for name, number in versions.items()),
        got=got,
        as_recorded=word == ("fixed" if mended else "still so"),
    )


def _older(installed: str, fixed: str) -> bool:
    from packaging.version import Version

    return Version(installed) < Version(fixed)


def _output(script: str, seconds: float) -> str:
    """The last line that starts with "got ", without that word; or how the process ended."""
    with tempfile.TemporaryDirectory(prefix="equivalence-finding-") as folder:
        path = Path(folder) / "finding.py"
        path.write_text(script, encoding="utf-8")
        quiet = {"TQDM_DISABLE": "1", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        try:
            ended = subprocess.run(
                [sys.executable, str(path)],
                cwd=folder,
                env={**os.environ, **quiet},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"no answer in {seconds:g} s"
    if ended.returncode < 0:
        return signal.Signals(-ended.returncode).name
    lines = [line for line in ended.stdout.splitlines() if line.startswith("got ")]
    if lines:
        return lines[-1].removeprefix("got ").strip()
    last = (ended.stderr.strip().splitlines() or ["no output"])[-1]
    return f"exit code {ended.returncode}: {last}"
