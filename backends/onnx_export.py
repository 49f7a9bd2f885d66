"""torch.onnx.export(dynamo=True) at opsets 18, 23 and 24, executed by ONNX Runtime on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from torch import Tensor, nn

from equivalence.converters.axes import DynamicShapes
from equivalence.converters.case import ConverterCase
from equivalence.converters.formulations import FUSED
from equivalence.declaration import KnownFault
from equivalence.declaration import converter as declare
from equivalence.masks import Mask
from equivalence.onnx.converted import Converted, convert
from equivalence.onnx.exporting import OPSETS

STATES: Final = KnownFault(
    law="state-writes-land",
    trouble="positions",
    case=ConverterCase(formulation="cache_one_hot", kv_len=2, values="normal"),
    note=(
        "torch 2.13's ONNX export drops what a module writes to its buffers, and says nothing: "
        "every call starts from the buffers of the export"
    ),
)


# From opset 23 on, these become one Attention, with the faults of ONNX Runtime's kernel.
BECOMES_ATTENTION: Final = {
    "formulation": FUSED,
    "target": OPSETS[1:],
}


def _refused_mask(law: str, **more: Any) -> KnownFault:
    return KnownFault(
        law=law,
        trouble="crash",
        case=ConverterCase(
            formulation="sdpa", target="opset23", q_len=2, kv_len=2, mask=Mask(axes=""), **more
        ),
        note=(
            "from opset 23 on, a mask whose query axis has length one reaches ONNX Runtime's "
            "Attention as it is, which refuses it at every call of several queries"
        ),
        where={"mask.axes": ("", "b", "h", "bh"), **BECOMES_ATTENTION},
    )


REFUSED_MASKS: Final = (
    _refused_mask("converted-agrees"),
    _refused_mask("other-lengths-agree", shapes="range", example_len=3),
)


def _lowest(law: str, **more: Any) -> KnownFault:
    return KnownFault(
        law=law,
        trouble="outside-bound",
        case=ConverterCase(
            formulation="sdpa",
            target="opset23",
            mask=Mask(form="float", hidden="finfo.min", empty_rows=1),
            **more,
        ),
        note="from opset 23 on, a row whose mask is the lowest finite number everywhere is zero",
        where={"mask.hidden": ("finfo.min",), **BECOMES_ATTENTION},
    )


LOWEST: Final = (
    _lowest("converted-agrees"),
    _lowest("other-lengths-agree", shapes="range", example_len=3, kv_len=2),
)


@declare(
    dtypes=("float32", "float16"),
    profile="graph",
    dynamic=True,
    targets=OPSETS,
    known_faults=(STATES, *REFUSED_MASKS, *LOWEST),
)
def export(
    module: nn.Module,
    example_inputs: Sequence[Tensor],
    *,
    dynamic_shapes: DynamicShapes | None = None,
    target: str = OPSETS[0],
) -> Converted:
    """Export by torch; ``target`` names the opset."""
    return convert(module, example_inputs, dynamic_shapes=dynamic_shapes, target=target)
