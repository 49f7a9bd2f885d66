"""What a report says about where it was made."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

PACKAGES: Final = ("torch", "numpy", "hypothesis", "ml-dtypes")


def environment(**facts: Any) -> dict[str, Any]:
    """Versions and the machine, in words that name neither a person nor a path."""
    return {
        "attention-equivalence": _version("attention-equivalence"),
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "cpus": os.cpu_count() or 1,
        "packages": {name: _version(name) for name in PACKAGES},
        **facts,
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
