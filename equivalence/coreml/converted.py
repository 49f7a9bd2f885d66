"""A converted module as a callable that evaluates its MIL graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from equivalence.converters.axes import DynamicShapes
from equivalence.coreml.conversion import argument_names, program_of
from equivalence.mil.graph import Graph

if TYPE_CHECKING:
    import torch


class Converted:
    """What ``convert`` returns: call it with tensors, in the order of the module's arguments.

    graph: the pymil ``Program``, to be audited. notes: said of the conversion. A stateful module
    keeps its states from call to call; ``reset`` fills them with zeros. The output has the type
    of the inputs, whatever Core ML's own interface needs (float32 before iOS16) and the mode
    computes in; ``evaluator`` gives what was not rounded.
    """

    def __init__(self, program: Any, names: Sequence[str], *, mode: str) -> None:
        self.graph = program
        self.evaluator = Graph(program, mode=mode)
        self._names = tuple(names)
        self._state = self.evaluator.make_state()

    def reset(self) -> None:
        """Forget every state."""
        self._state = self.evaluator.make_state()

    def __call__(self, *tensors: torch.Tensor) -> torch.Tensor:
        """The first output of the graph."""
        # A graph drops an input that nothing depends on, so they are matched by name.
        given = dict(zip(self._names, tensors, strict=True))
        output: torch.Tensor = next(iter(self.evaluator(given, self._state).values()))
        wanted = next((t.dtype for t in tensors if t.is_floating_point()), output.dtype)
        return output.to(wanted)


def convert(
    module: torch.nn.Module,
    example_inputs: Sequence[torch.Tensor],
    *,
    dynamic_shapes: DynamicShapes | None = None,
    target: str = "iOS18",
    route: str = "trace",
    mode: str = "wide",
) -> Converted:
    """Convert ``module`` with coremltools; the result is evaluated by MIL's documented meaning.

    mode: how the evaluator rounds (``equivalence.mil.modes``). Raises what the conversion raises.
    """
    program = program_of(
        module, example_inputs, dynamic_shapes=dynamic_shapes, target=target, route=route
    )
    names = argument_names(module, len(example_inputs))
    return Converted(program, names, mode=mode)
