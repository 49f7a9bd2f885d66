"""What a report says about where it was made."""

from __future__ import annotations

import os
import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

PACKAGES: Final = ("torch", "numpy", "hypothesis", "ml-dtypes")
# Whatever of these is installed: a backend may have run in it, here or in a worker.
RUNTIMES: Final = (
    "coreai-core",
    "coreai-torch",
    "coremltools",
    "executorch",
    "jax",
    "jaxlib",
    "mlx",
    "numba",
    "onnx",
    "onnxruntime",
    "onnxscript",
    "openvino",
    "transformers",
    "triton",
)


def environment(**facts: Any) -> dict[str, Any]:
    """Versions and the machine, in words that name neither a person nor a path."""
    return {
        "attention-equivalence": _version("attention-equivalence"),
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "cpus": os.cpu_count() or 1,
        "packages": {
            **{name: _version(name) for name in PACKAGES},
            **{name: found for name in RUNTIMES if (found := _version(name)) is not None},
        },
        **facts,
    }


def processor() -> str:
    """The model of this machine's processor, and the vector instructions that torch uses."""
    import torch

    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as facts:
            named = [line.partition(":")[2].strip() for line in facts if line.startswith("model n")]
        model = named[0] if named else model
    except OSError:
        pass
    return f"{model} ({torch.backends.cpu.get_cpu_capability()})"


@cache
def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
