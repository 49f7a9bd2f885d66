"""OpenVINO as a converter: any module by trace, its lengths open, in either precision."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from equivalence.backends.openvino_compiled import FORCED, Compiled, Config
from equivalence.converters.axes import DynamicShapes
from equivalence.declaration import converter as declare
from equivalence.errors import Unsupported


def _converted(module: nn.Module, example_inputs: Sequence[Tensor], config: Config) -> Compiled:
    if getattr(module, "states", ()):
        raise Unsupported("a trace keeps no state")
    return Compiled(module, example_inputs, config)


@declare(dtypes=("float32", "float16"), profile="graph", dynamic=True)
def trace(
    module: nn.Module,
    example_inputs: Sequence[Tensor],
    *,
    dynamic_shapes: DynamicShapes | None = None,
) -> Compiled:
    """Convert by trace, computed in float32; the lengths of a trace stay open by themselves."""
    del dynamic_shapes
    return _converted(module, example_inputs, FORCED)


@declare(dtypes=("float32", "float16"), profile="bf16_inside", dynamic=True)
def trace_default(
    module: nn.Module,
    example_inputs: Sequence[Tensor],
    *,
    dynamic_shapes: DynamicShapes | None = None,
) -> Compiled:
    """Convert by trace, in the precision that OpenVINO chooses."""
    del dynamic_shapes
    return _converted(module, example_inputs, {})
