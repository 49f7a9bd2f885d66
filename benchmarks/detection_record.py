"""The committed JSON behind docs/evidence/detection.md: read, added to row by row, written."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any, Final

from equivalence.environment import environment, processor

ROOT: Final = Path(__file__).parents[1]
RECORD: Final = ROOT / "docs" / "evidence" / "data" / "detection.json"
PACKAGES: Final = ("torch", "numpy", "hypothesis")

Record = dict[str, Any]


def read(path: Path = RECORD) -> Record:
    """The record, or an empty one where there is none yet."""
    return json.loads(path.read_text("utf-8")) if path.is_file() else {}


def write(record: Record, path: Path = RECORD) -> None:
    """One row a line, so that a change of one figure is a change of one line."""
    parts = [f"{_text(name)}: {_block(record[name])}" for name in sorted(record)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def _block(part: Any) -> str:
    if isinstance(part, dict) and "rows" in part:
        rows = ",\n".join(f"  {_text(row)}" for row in part["rows"])
        about = ",\n".join(f"  {_text(run)}" for run in part["about"])
        return f'{{"about": [\n{about}\n], "rows": [\n{rows}\n]}}'
    return _text(part)


def _text(value: Any) -> str:
    return json.dumps(value, allow_nan=False, sort_keys=True)


def part_of(record: Record, name: str, **about: Any) -> list[dict[str, Any]]:
    """The rows of one part, to add to; each run says what it is ``about``, and where it ran."""
    part = record.setdefault(name, {"about": [], "rows": []})
    part["about"].append({**where(), **about})
    return part["rows"]


def where() -> dict[str, Any]:
    """Commit, versions and machine of a run."""
    facts = environment()
    return {
        "commit": _commit(),
        "day": time.strftime("%Y-%m-%d"),
        "python": facts["python"],
        "packages": {name: facts["packages"][name] for name in PACKAGES},
        "processor": processor(),
        "load": [round(os.getloadavg()[0]), os.cpu_count()],
    }


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "unknown"
