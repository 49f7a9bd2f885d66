"""A model that is cut into two packages, as ``coremltools`` bisects one, and run in sequence."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from equivalence.audit.packages import open_package
from equivalence.coreml.conversion import conversion_noise_kept
from equivalence.coreml.quiet import coremltools
from equivalence.mil.graph import Graph

if TYPE_CHECKING:
    import torch


def cut(model: Any) -> tuple[Any, Any]:
    """The programs of the two chunks of an MLModel, saved and read back.

    Raises what ``coremltools.models.utils.bisect_model`` raises.
    """
    ct = coremltools()
    with tempfile.TemporaryDirectory(prefix="equivalence-") as folder:
        with conversion_noise_kept():
            ct.models.utils.bisect_model(model, folder, check_output_correctness=False)
        first, second = (Path(folder) / f"chunk{number}.mlpackage" for number in (1, 2))
        return (
            open_package(first, settle=False).program,
            open_package(second, settle=False).program,
        )


class Chunks:
    """Two graphs: the second is given what the first returns, and what the caller gives."""

    def __init__(self, programs: tuple[Any, Any], *, mode: str) -> None:
        self.graphs = tuple(Graph(program, mode=mode) for program in programs)

    def __call__(self, given: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The outputs of the second chunk, by name."""
        first, second = self.graphs
        return second({**given, **first(given)})
