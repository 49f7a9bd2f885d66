"""``torch.export`` with the flexible lengths that a case asks for."""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Any

from equivalence.converters.axes import DynamicAxis, DynamicShapes

if TYPE_CHECKING:
    import torch


def exported(
    module: torch.nn.Module,
    example: Sequence[torch.Tensor],
    names: Sequence[str],
    dynamic: DynamicShapes,
) -> torch.export.ExportedProgram:
    """The exported program of ``module``; axes of one name share one ``Dim``."""
    import torch

    shapes = None
    if dynamic:
        dims: dict[str, Any] = {}
        shapes = {
            name: {axis: _dim(dims, about) for axis, about in dynamic.get(name, {}).items()}
            for name in names
        }
    # Where it fails it prints the whole graph as well as raising.
    said = io.StringIO()
    with torch.no_grad(), redirect_stderr(said), redirect_stdout(said):
        return torch.export.export(module, tuple(example), dynamic_shapes=shapes)


def _dim(dims: dict[str, Any], about: DynamicAxis) -> Any:
    import torch

    if about.name not in dims:
        dims[about.name] = torch.export.Dim(about.name, min=about.low, max=about.high)
    return dims[about.name]
