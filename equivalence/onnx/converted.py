"""A converted module as a callable that ONNX Runtime executes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from equivalence.converters.axes import DynamicShapes
from equivalence.coreml.conversion import argument_names
from equivalence.onnx.exporting import OPSETS, model_of
from equivalence.onnx.session import reason, session_of

if TYPE_CHECKING:
    import torch


class Converted:
    """Call it with tensors, in the order of the module's arguments.

    graph: the ``ModelProto``, to be audited. ONNX has no states, so there is nothing to reset.
    """

    def __init__(self, model: Any, names: Sequence[str]) -> None:
        self.graph = model
        self._names = tuple(names)
        try:
            self._session = session_of(model.SerializeToString())
        except Exception as error:
            raise RuntimeError(f"ONNX Runtime: {reason(error)}") from error
        self._taken = {taken.name for taken in self._session.get_inputs()}

    def reset(self) -> None:
        """Forget nothing."""

    def __call__(self, *tensors: torch.Tensor) -> torch.Tensor:
        """The first output of the graph."""
        import torch

        given = {
            name: tensor.detach().contiguous().numpy()
            for name, tensor in zip(self._names, tensors, strict=True)
            if name in self._taken
        }
        try:
            return torch.from_numpy(self._session.run(None, given)[0])
        except Exception as error:
            raise RuntimeError(f"ONNX Runtime: {reason(error)}") from error


def convert(
    module: torch.nn.Module,
    example_inputs: Sequence[torch.Tensor],
    *,
    dynamic_shapes: DynamicShapes | None = None,
    target: str = OPSETS[0],
) -> Converted:
    """Export ``module``. Raises what the export raises, or ONNX Runtime when it loads the model."""
    model = model_of(module, example_inputs, dynamic_shapes=dynamic_shapes, target=target)
    return Converted(model, argument_names(module, len(example_inputs)))
