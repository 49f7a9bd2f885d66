"""Core ML conversion by trace and by torch.export, its graph evaluated as MIL is documented.

This is not Apple's hardware: it says what the converter made, not what a device makes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from torch import Tensor, nn

from equivalence.converters.axes import DynamicShapes
from equivalence.converters.case import ConverterCase
from equivalence.converters.formulations import FUSED
from equivalence.coreml.compressing import COMPRESSIONS
from equivalence.coreml.conversion import ROUTES, TARGETS
from equivalence.coreml.converted import Converted, convert
from equivalence.declaration import KnownFault
from equivalence.declaration import converter as declare
from equivalence.masks import Mask

FLEXIBLE: Final = ("range", "enumerated")
GQA_NOTE: Final = (
    "coremltools 9.0 drops enable_gqa: with a flexible length it tiles whole blocks of heads, so "
    "query head h reads h % num_kv_heads (apple/coremltools#2855)"
)


def _gqa(law: str, **more: Any) -> KnownFault:
    case = ConverterCase(
        formulation="sdpa_gqa", num_kv_heads=2, group_size=2, kv_len=2, shapes="range", **more
    )
    where = {"formulation": ("sdpa_gqa",), "shapes": FLEXIBLE}
    return KnownFault(law=law, trouble="outside-bound", case=case, note=GQA_NOTE, where=where)


def _empty_row(note: str, where: dict[str, tuple[Any, ...]], **fields: Any) -> KnownFault:
    return KnownFault(
        law="empty-rows-as-in-source",
        trouble="masked-rows",
        case=ConverterCase(mask=Mask(empty_rows=1), **fields),
        note=note,
        where=where,
    )


# What a search that knows nothing finds in coremltools 9.0 (docs/evidence/coreml.md).
BOTH_ROUTES: Final = (
    _gqa("converted-agrees"),
    _gqa("other-lengths-agree", example_len=3),
    _empty_row(
        "before iOS18, SDPA adds -3e4 where its boolean mask hides: a row that sees no key is an "
        "average, and zero in torch",
        {"formulation": FUSED, "target": TARGETS[:3]},
        formulation="sdpa",
        target="iOS17",
    ),
    _empty_row(
        "from iOS18 on, the definition of MIL's scaled_dot_product_attention makes a row that "
        "sees no key NaN; it is zero in torch",
        {"formulation": FUSED, "target": (None, *TARGETS[3:])},
        formulation="sdpa",
    ),
)
TRACE_ONLY: Final = (
    _empty_row(
        "in float32, masked_fill with -inf becomes -3.4e38: a row that sees no key is an average, "
        "and NaN in torch",
        {"dtype": ("float32",)},
        target="iOS16",
    ),
    KnownFault(
        law="state-writes-land",
        trouble="positions",
        case=ConverterCase(formulation="cache_indexed", kv_len=2, dtype="float16"),
        note="on the trace route, cache[:, :, position] = token writes no state, and says nothing",
        where={"formulation": ("cache_indexed",)},
    ),
)


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
        known_faults=BOTH_ROUTES[:2],  # no row without a key is drawn
    )(made)


compressed = _compressed("wide")
compressed_double = _compressed("double")


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
