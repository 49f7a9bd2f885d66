"""Core AI, Apple's successor runtime, whose Linux wheel executes on the CPU.

Its float16 products accumulate in float16, so its profile is its own. In a worker process: an
indexed write to a state aborts it.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from equivalence.converters.axes import DynamicShapes
from equivalence.coreai.converted import Converted, convert
from equivalence.declaration import converter as declare


@declare(dtypes=("float32", "float16"), profile="core_ai", dynamic=True)
def export(
    module: nn.Module,
    example_inputs: Sequence[Tensor],
    *,
    dynamic_shapes: DynamicShapes | None = None,
) -> Converted:
    """Convert through torch.export; executed by Core AI's own CPU runtime."""
    return convert(module, example_inputs, dynamic_shapes=dynamic_shapes)
