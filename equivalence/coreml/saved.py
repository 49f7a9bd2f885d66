"""The slow tier: through a package on disk and back, as a shipped model goes."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from equivalence.audit.packages import open_package
from equivalence.converters.axes import DynamicShapes
from equivalence.coreml.conversion import argument_names, program_of
from equivalence.coreml.converted import Converted

if TYPE_CHECKING:
    import torch


def convert_saved(
    module: torch.nn.Module,
    example_inputs: Sequence[torch.Tensor],
    *,
    dynamic_shapes: DynamicShapes | None = None,
    target: str = "iOS18",
    route: str = "trace",
    mode: str = "wide",
) -> Converted:
    """Convert to an mlprogram, save it, read the package back, and evaluate what was read."""
    model = program_of(
        module,
        example_inputs,
        dynamic_shapes=dynamic_shapes,
        target=target,
        route=route,
        convert_to="mlprogram",
    )
    with tempfile.TemporaryDirectory(prefix="equivalence-") as folder:
        path = Path(folder) / "module.mlpackage"
        model.save(str(path))
        program = open_package(path).program
    return Converted(program, argument_names(module, len(example_inputs)), mode=mode)
