"""torch.onnx.export(dynamo=True) at opsets 18, 23 and 24, executed by ONNX Runtime on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from torch import Tensor, nn

from equivalence.converters.axes import DynamicShapes
from equivalence.converters.case import ConverterCase
from equivalence.declaration import KnownFault
from equivalence.declaration import converter as declare
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


@declare(
    dtypes=("float32", "float16"),
    profile="graph",
    dynamic=True,
    targets=OPSETS,
    known_faults=(STATES,),
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
