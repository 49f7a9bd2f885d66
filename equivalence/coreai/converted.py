"""A module converted to Core AI, as a callable that its own runtime executes.

The runtime may abort the process, so a registered converter runs in a worker.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import warnings
from collections.abc import Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from equivalence.converters.axes import DynamicShapes
from equivalence.converters.exporting import exported
from equivalence.coreml.conversion import argument_names
from equivalence.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch


class Converted:
    """Call it with tensors, in the order of the module's arguments.

    graph: the ``AIProgram``, to be audited. States are kept from call to call, and ``reset``
    fills them with zeros. One event loop serves all calls; the model is loaded at the first.
    """

    def __init__(self, program: Any, names: Sequence[str]) -> None:
        self.graph = program
        self._names = tuple(names)
        self._folder = tempfile.TemporaryDirectory(
            prefix="equivalence-", ignore_cleanup_errors=True
        )
        self._asset = program.save_asset(Path(self._folder.name) / "module.aimodel")
        self._loop = asyncio.new_event_loop()
        self._stack = AsyncExitStack()
        self._function: Any = None
        self._state: dict[str, Any] = {}

    def _loaded(self) -> Any:
        if self._function is None:
            with quiet():
                model = self._loop.run_until_complete(
                    self._stack.enter_async_context(self._asset.executable())
                )
                self._function = model.load_function("main")
            self.reset()
        return self._function

    def reset(self) -> None:
        """Forget every state."""
        import numpy as np
        from coreai.runtime import NDArray

        if self._function is None:
            return
        about = self._function.desc
        self._state = {}
        for name in about.state_names:
            kept = about.state_descriptor(name)
            self._state[name] = NDArray(np.zeros(tuple(kept.shape), np.dtype(kept.dtype)))

    def __call__(self, *tensors: torch.Tensor) -> torch.Tensor:
        """The first output of the function ``main``."""
        import numpy as np
        import torch
        from coreai.runtime import NDArray

        function = self._loaded()
        known = set(function.desc.input_names)
        given = {
            name: NDArray(np.ascontiguousarray(tensor.detach().numpy()))
            for name, tensor in zip(self._names, tensors, strict=True)
            if name in known
        }
        call = function(given, self._state) if self._state else function(given)
        results = self._loop.run_until_complete(call)
        return torch.from_numpy(np.array(next(iter(results.values())).numpy()))

    def close(self) -> None:
        """Let go of the model and its files."""
        if not self._loop.is_closed():
            self._loop.run_until_complete(self._stack.aclose())
            self._loop.close()
            self._folder.cleanup()

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:  # at the end of the interpreter anything may be gone
            return


def convert(
    module: torch.nn.Module,
    example_inputs: Sequence[torch.Tensor],
    *,
    dynamic_shapes: DynamicShapes | None = None,
) -> Converted:
    """Convert ``module``, in the dtype that it has, through ``torch.export``.

    Raises what the conversion raises; Unsupported for 64-bit whole numbers, which the runtime
    rejects.
    """
    import torch

    if any(tensor.dtype == torch.int64 for tensor in example_inputs):
        raise Unsupported("Core AI takes no int64 inputs")
    names = argument_names(module, len(example_inputs))
    with warnings.catch_warnings(), quiet():
        warnings.simplefilter("ignore")
        import coreai_torch

        program = exported(module, example_inputs, names, dynamic_shapes or {})
        program = program.run_decompositions(coreai_torch.get_decomp_table())
        converted = coreai_torch.TorchConverter().add_exported_program(program).to_coreai()
    return Converted(converted, names)


@contextmanager
def quiet() -> Iterator[None]:
    """The runtime writes to file descriptors 1 and 2 past Python; inside the block it does not."""
    kept = [os.dup(number) for number in (1, 2)]
    sink = os.open(os.devnull, os.O_WRONLY)
    try:
        for number in (1, 2):
            os.dup2(sink, number)
        yield
    finally:
        for number, copy in zip((1, 2), kept, strict=True):
            os.dup2(copy, number)
            os.close(copy)
        os.close(sink)
