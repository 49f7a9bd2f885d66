"""A torch module to an ONNX model, by ``torch.onnx.export(dynamo=True)``."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from equivalence.converters.axes import DynamicShapes
from equivalence.converters.exporting import exported
from equivalence.coreml.conversion import argument_names, conversion_noise_kept
from equivalence.errors import require

if TYPE_CHECKING:
    import torch

OPSETS: Final = ("opset18", "opset23", "opset24")


def model_of(
    module: torch.nn.Module,
    example_inputs: Sequence[torch.Tensor],
    *,
    dynamic_shapes: DynamicShapes | None = None,
    target: str = OPSETS[0],
) -> Any:
    """The ``ModelProto`` of ``module``, in the dtype that it has; ``target`` names the opset.

    From opset 23 on, scaled_dot_product_attention becomes one Attention. Raises whatever the
    export raises.
    """
    import torch

    require(target in OPSETS, f"target={target!r} is not one of {', '.join(OPSETS)}")
    names = argument_names(module, len(example_inputs))
    # It says of each optional library that it is not there.
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with conversion_noise_kept():
            program = exported(module, example_inputs, names, dynamic_shapes or {})
            made = torch.onnx.export(
                program, dynamo=True, opset_version=int(target.removeprefix("opset")), verbose=False
            )
    finally:
        logger.setLevel(level)
    assert made is not None
    return made.model_proto
