"""What the figures of a run depend on, in words that name neither a person nor a path."""

from __future__ import annotations

import os
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

LIBRARIES: Final = ("torch", "numpy", "coremltools", "onnxruntime", "jax", "mlx", "openvino")


def fingerprint(device: str) -> dict[str, Any]:
    """Processor, memory, BLAS and libraries; equal ones make two runs' times comparable."""
    import psutil
    import torch

    blas = [flag for flag in ("mkl", "openmp", "mkldnn") if _built_with(flag)]
    found: dict[str, Any] = {
        "device": device,
        "cores": os.cpu_count() or 1,
        "memory_bytes": int(psutil.virtual_memory().total),
        "vector": str(torch.backends.cpu.get_cpu_capability()),
        "torch_built_with": blas,
        "libraries": {name: known for name in LIBRARIES if (known := _version(name)) is not None},
    }
    if device.partition(":")[0] == "cuda":
        found["gpu"] = str(torch.cuda.get_device_name(device))
        found["cuda"] = str(torch.version.cuda)
    return found


def load() -> float:
    """How many processes wanted a core during the last minute, for each core."""
    try:
        return os.getloadavg()[0] / (os.cpu_count() or 1)
    except (OSError, AttributeError):
        return 0.0


def free_memory() -> int:
    """Bytes that can be taken without swapping."""
    import psutil

    return int(psutil.virtual_memory().available)


def peak_memory() -> int:
    """The most bytes that this process ever held; 0 where nobody says."""
    try:
        import resource
    except ImportError:  # not on Windows
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _built_with(flag: str) -> bool:
    import torch

    backend = getattr(torch.backends, flag, None)
    return backend is not None and bool(backend.is_available())


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
