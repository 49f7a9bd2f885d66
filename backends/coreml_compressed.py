"""Core ML conversion with compressed weights, by both routes, its graph evaluated as documented."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from equivalence.backends.coreml_faults import BOTH_ROUTES, LOST_WRITE
from equivalence.converters.axes import DynamicShapes
from equivalence.coreml.compressing import COMPRESSIONS
from equivalence.coreml.conversion import ROUTES, TARGETS
from equivalence.coreml.converted import Converted, convert
from equivalence.declaration import converter as declare


def _compressed(mode: str) -> Callable[..., Converted]:
    def made(
        module: nn.Module,
        example_inputs: Sequence[Tensor],
        *,
        dynamic_shapes: DynamicShapes | None = None,
        target: str = "iOS18",
        route: str = "trace",
        compression: str | None = None,
    ) -> Converted:
        return convert(
            module,
            example_inputs,
            dynamic_shapes=dynamic_shapes,
            target=target,
            route=route,
            mode=mode,
            compression=compression,
        )

    made.__name__ = made.__qualname__ = f"compressed_{mode}"
    made.__doc__ = f"Both routes, with compressed weights; evaluated in mode {mode}."
    return declare(
        dtypes=("float32", "float16"),
        profile="graph",
        dynamic=True,
        targets=TARGETS[1:],
        routes=ROUTES,
        compressions=COMPRESSIONS,
        exact=mode == "double",
        known_faults=(*BOTH_ROUTES[:2], LOST_WRITE),  # no row without a key is drawn
    )(made)


compressed = _compressed("wide")
compressed_double = _compressed("double")
