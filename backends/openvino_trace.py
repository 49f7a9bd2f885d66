"""OpenVINO as a converter: any module by trace, its lengths open, in either precision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from torch import Tensor, nn

from equivalence.backends.openvino_compiled import FORCED, Compiled, Config
from equivalence.backends.openvino_faults import MASK_BY_HEAD
from equivalence.converters.axes import DynamicShapes
from equivalence.converters.case import ConverterCase
from equivalence.declaration import KnownFault
from equivalence.declaration import converter as declare
from equivalence.errors import Unsupported
from equivalence.masks import Mask

RELATED: Final[dict[str, dict[str, Any]]] = {
    "converted-agrees": {},
    "other-lengths-agree": {"shapes": "range", "example_len": 3},
}
BY_HEAD: Final = tuple(
    KnownFault(
        law=law,
        trouble="crash",
        case=ConverterCase(
            formulation="sdpa_gqa",
            num_kv_heads=2,
            group_size=2,
            kv_len=2,
            mask=Mask(pattern="padding", axes="h"),
            **more,
        ),
        where={"formulation": ("sdpa_gqa",), "mask.axes": ("h", "bh", "hq", "bhq")},
        note=MASK_BY_HEAD.note,
    )
    for law, more in RELATED.items()
)


def _converted(module: nn.Module, example_inputs: Sequence[Tensor], config: Config) -> Compiled:
    if getattr(module, "states", ()):
        raise Unsupported("a trace keeps no state")
    return Compiled(module, example_inputs, config)


@declare(dtypes=("float32", "float16"), profile="graph", dynamic=True, known_faults=BY_HEAD)
def trace(
    module: nn.Module,
    example_inputs: Sequence[Tensor],
    *,
    dynamic_shapes: DynamicShapes | None = None,
) -> Compiled:
    """Convert by trace, computed in float32; the lengths of a trace stay open by themselves."""
    del dynamic_shapes
    return _converted(module, example_inputs, FORCED)


@declare(dtypes=("float32", "float16"), profile="bf16_inside", dynamic=True, known_faults=BY_HEAD)
def trace_default(
    module: nn.Module,
    example_inputs: Sequence[Tensor],
    *,
    dynamic_shapes: DynamicShapes | None = None,
) -> Compiled:
    """Convert by trace, in the precision that OpenVINO chooses."""
    del dynamic_shapes
    return _converted(module, example_inputs, {})
