"""Core ML conversion by trace and by torch.export, its graph evaluated as MIL is documented.

This is not Apple's hardware: it says what the converter made, not what a device makes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from equivalence.converters.axes import DynamicShapes
from equivalence.coreml.conversion import ROUTES, TARGETS
from equivalence.coreml.converted import Converted, convert
from equivalence.declaration import converter as declare


def _converter(route: str, mode: str) -> Callable[..., Converted]:
    def made(
        module: nn.Module,
        example_inputs: Sequence[Tensor],
        *,
        dynamic_shapes: DynamicShapes | None = None,
        target: str = "iOS18",
    ) -> Converted:
        return convert(
            module,
            example_inputs,
            dynamic_shapes=dynamic_shapes,
            target=target,
            route=route,
            mode=mode,
        )

    made.__name__ = made.__qualname__ = f"{route}_{mode}"
    made.__doc__ = f"Convert by {route}; the graph is evaluated in mode {mode}."
    return declare(dtypes=("float32", "float16"), profile="graph", dynamic=True, targets=TARGETS)(
        made
    )


trace = _converter("trace", "wide")
export = _converter("export", "wide")
trace_strict = _converter("trace", "strict")
export_strict = _converter("export", "strict")
trace_double = _converter("trace", "double")
export_double = _converter("export", "double")


@declare(
    dtypes=("float32", "float16"), profile="graph", dynamic=True, targets=TARGETS, routes=ROUTES
)
def either_route(
    module: nn.Module,
    example_inputs: Sequence[Tensor],
    *,
    dynamic_shapes: DynamicShapes | None = None,
    target: str = "iOS18",
    route: str = "trace",
) -> Converted:
    """Both routes at once, and nothing known beforehand: what a search from nothing is given."""
    options: dict[str, Any] = {"target": target, "route": route}
    return convert(module, example_inputs, dynamic_shapes=dynamic_shapes, **options)


__all__ = [
    "either_route",
    "export",
    "export_double",
    "export_strict",
    "trace",
    "trace_double",
    "trace_strict",
]
