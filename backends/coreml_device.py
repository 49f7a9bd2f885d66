"""Core ML on a Mac, once for each compute unit, in a worker. NOT VERIFIED: docs/coreml.md.

fp16 fused SDPA with several queries has crashed at large head sizes, and the GPU has been wrong
for batches of ten or more (apple/coremltools#2650): hence the worker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from equivalence.coreml.conversion import ROUTES, TARGETS
from equivalence.coreml.device import converter
from equivalence.declaration import converter as declare


def _on(unit: str) -> Callable[..., Any]:
    return declare(
        dtypes=("float32", "float16"),
        profile="core_ai",
        dynamic=True,
        targets=TARGETS,
        routes=ROUTES,
    )(converter(unit))


cpu_only = _on("CPU_ONLY")
cpu_and_gpu = _on("CPU_AND_GPU")
cpu_and_ne = _on("CPU_AND_NE")
every_unit = _on("ALL")
