"""The same table under another torch, in a virtual environment of its own.

The environment stands in the user's cache folder and is used again. It holds that torch and the
few packages that `equivalence time` needs; this package is copied into it, as it stands here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import msgspec

from equivalence.errors import InvalidRequest, require
from equivalence.timing.history import SCHEMA
from equivalence.timing.results import TimingRun

PACKAGES: Final = ("hypothesis", "jinja2", "ml-dtypes", "msgspec", "psutil", "rich", "typer")
VERSION: Final = re.compile(r"\d+(\.\d+)+([a-z]+\d+)?(\+[a-z0-9.]+)?")
LAST: Final = 300  # characters of what pip said
OLDEST: Final = (2, 5)  # the first with enable_gqa


class _Report(msgspec.Struct, frozen=True, kw_only=True):
    """What is read of the other process's report."""

    schema: int
    timing: TimingRun | None = None


def run_under(version: str, arguments: Sequence[str]) -> TimingRun:
    """``equivalence time ARGUMENTS`` under torch ``version``.

    Raises InvalidRequest, in one line, where the environment cannot be made (with the end of what
    pip said) or the run fails.
    """
    require(
        VERSION.fullmatch(version) is not None,
        f"--torch {version!r} is not a version such as 2.9.1",
    )
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    require(
        numbers >= OLDEST, f"--torch {version}: enable_gqa came with {'.'.join(map(str, OLDEST))}"
    )
    python = _environment(version)
    finished = subprocess.run(
        [str(python), "-m", "equivalence", "time", *arguments, "--json", "-"],
        env=_clean(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        check=False,
    )
    if finished.returncode not in (0, 1):
        raise InvalidRequest(
            f"--torch {version}: the run in its environment ended with code {finished.returncode}"
        )
    try:
        found = msgspec.json.decode(finished.stdout, type=_Report)
    except msgspec.MsgspecError as error:
        raise InvalidRequest(f"--torch {version}: its report cannot be read: {error}") from None
    require(
        found.schema == SCHEMA and found.timing is not None,
        f"--torch {version}: its report holds no timings",
    )
    assert found.timing is not None
    return found.timing


def cache_folder() -> Path:
    """Where environments are kept: ``$XDG_CACHE_HOME``, or ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "attention-equivalence"


def _environment(version: str) -> Path:
    """The Python of the environment; made where it is not there yet, or was left half made."""
    folder = cache_folder() / f"torch-{version}-python{sys.version_info[0]}.{sys.version_info[1]}"
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    made = folder / "complete"
    if not made.exists():
        print(f"making {folder.name} in the cache folder: torch {version}", file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
        try:
            venv.create(folder, with_pip=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise InvalidRequest(f"--torch {version}: no environment: {error}") from None
        _installed(python, version)
        made.touch()
    _copied(python)
    return python


def _installed(python: Path, version: str) -> None:
    """torch and what it is timed with; numpy of the major version that this torch was built for."""
    asked = [f"torch=={version}", "numpy>=2", *PACKAGES]
    finished = subprocess.run(
        [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *asked],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env=_clean(),
    )
    if finished.returncode:
        said = " ".join(finished.stderr.split())[-LAST:]
        raise InvalidRequest(f"--torch {version}: pip cannot install it: {said}")


def _copied(python: Path) -> None:
    """This package, as it stands here, into the environment."""
    where = subprocess.run(
        [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
        env=_clean(),
    )
    target = Path(where.stdout.strip()) / "equivalence"
    shutil.rmtree(target, ignore_errors=True)
    skipped = shutil.ignore_patterns("__pycache__")
    # The two folders that stand beside the package may be links in it, or not in it at all.
    for name in ("equivalence", "equivalence.strategies", "equivalence.backends"):
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        inner = target.joinpath(*name.split(".")[1:])
        shutil.copytree(Path(spec.origin).parent, inner, dirs_exist_ok=True, ignore=skipped)


def _clean() -> dict[str, str]:
    """This process's environment without what would lead Python back to its own packages."""
    mine = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if name not in mine}
