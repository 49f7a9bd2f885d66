"""Core ML conversion by trace and by torch.export, its graph evaluated as MIL is documented.

This is not Apple's hardware: it says what the converter made, not what a device makes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from equivalence.backends.coreml_faults import BOTH_ROUTES, TRACE_ONLY
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

    made.__name__ = made.__qualname__ = route if mode == "wide" else f"{route}_{mode}"
    made.__doc__ = f"Convert by {route}; the graph is evaluated in mode {mode}."
    faults = (*BOTH_ROUTES, *(TRACE_ONLY if route == "trace" else ()))
    return declare(
        dtypes=("float32", "float16"),
        profile="graph",
        dynamic=True,
        targets=TARGETS,
        known_faults=faults,
        exact=mode == "double",
    )(made)


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
    """Both routes, and no fault known beforehand: what a search from nothing is given."""
    return convert(
        module, example_inputs, dynamic_shapes=dynamic_shapes, target=target, route=route
    )
