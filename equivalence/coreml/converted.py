"""A converted module as a callable that evaluates its MIL graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from equivalence.converters.axes import DynamicShapes
from equivalence.coreml.chunks import Chunks, cut
from equivalence.coreml.compressing import IN_TWO, compress, compressed_model
from equivalence.coreml.conversion import argument_names, program_of
from equivalence.errors import InvalidRequest, Unsupported
from equivalence.mil.compiling import picking
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
        # A graph drops an input that nothing depends on.
        self._taken = picking([self._names.index(name) for name in self.evaluator.inputs])
        self._state = self.evaluator.make_state()

    def reset(self) -> None:
        """Forget every state."""
        self._state = self.evaluator.make_state()

    def _run(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        return self.evaluator.run(self._taken(tensors), self._state)[0]

    def __call__(self, *tensors: torch.Tensor) -> torch.Tensor:
        """The first output of the graph."""
        if len(tensors) != len(self._names):
            named = ", ".join(self._names)
            raise InvalidRequest(f"{len(tensors)} tensors were given for the arguments {named}")
        output = self._run(tensors)
        for tensor in tensors:
            if tensor.is_floating_point():
                wanted = tensor.dtype
                return output if output.dtype is wanted else rounded_once(output, wanted)
        return output


class Chunked(Converted):
    """The same of a model that was cut into two chunks, which keep no states."""

    def __init__(self, program: Any, chunks: Chunks, names: Sequence[str]) -> None:
        self.graph = program
        self.chunks = chunks
        self._names = tuple(names)

    def reset(self) -> None:
        """Nothing: there are no states."""

    def _run(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        return next(iter(self.chunks(dict(zip(self._names, tensors, strict=True))).values()))


def rounded_once(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """``tensor`` in ``dtype``, rounded once: torch goes from float64 to float16 by float32."""
    import torch

    if tensor.dtype is torch.float64 and dtype is torch.float16:
        with np.errstate(over="ignore"):
            return torch.from_numpy(tensor.numpy().astype(np.float16))
    return tensor.to(dtype)


def convert(
    module: torch.nn.Module,
    example_inputs: Sequence[torch.Tensor],
    *,
    dynamic_shapes: DynamicShapes | None = None,
    target: str = "iOS18",
    route: str = "trace",
    mode: str = "wide",
    compression: str | None = None,
) -> Converted:
    """Convert ``module`` with coremltools; the result is evaluated by MIL's documented meaning.

    mode: how the evaluator rounds (``equivalence.mil.modes``). compression: of the weights
    (``equivalence.coreml.compressing``). Raises what the conversion raises.
    """
    in_two = compression == IN_TWO
    if in_two and hasattr(module, "states") and module.states:
        raise Unsupported("a model with states is not cut in two: a state belongs to one package")
    program = program_of(
        module,
        example_inputs,
        dynamic_shapes=dynamic_shapes,
        target=target,
        route=route,
        convert_to="mlprogram" if in_two else "milinternal",
        to_be_cut=in_two,
    )
    names = argument_names(module, len(example_inputs))
    if in_two:
        model = compressed_model(program, IN_TWO, target)
        return Chunked(model._mil_program, Chunks(cut(model), mode=mode), names)
    if compression is not None:
        compress(program, compression, target)
    return Converted(program, names, mode=mode)
