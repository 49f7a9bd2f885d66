"""A torch module traced, converted by OpenVINO, and compiled once for all sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import openvino
import torch
from torch import Tensor, nn

Config = dict[str, str]
# On processors with bfloat16 the default is to compute float32 models in bfloat16.
FORCED: Final[Config] = {"INFERENCE_PRECISION_HINT": "f32"}
BFLOAT16_HERE: Final = "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


class Compiled:
    """A compiled model, called with torch tensors; ``graph`` is its ``openvino.Model``."""

    def __init__(self, module: nn.Module, example: Sequence[Tensor], config: Config) -> None:
        self.graph = openvino.convert_model(module.eval(), example_input=tuple(example))
        self._config = config  # with one thread, an inference that fails gives an empty result
        self._run = self._compiled()

    def _compiled(self) -> Any:
        return openvino.Core().compile_model(self.graph, "CPU", self._config)

    def __call__(self, *tensors: Tensor) -> Tensor:
        """The first output; bfloat16 crosses as it lies in memory."""
        try:
            result = self._run([_given(tensor) for tensor in tensors])
        except RuntimeError:
            self._run = self._compiled()  # one that raised may raise again on a call that is right
            raise
        output = self._run.output(0)
        held = torch.from_numpy(result[output].copy())
        if output.element_type == openvino.Type.bf16:
            return held.view(torch.int16).view(torch.bfloat16)
        return held


def _given(tensor: Tensor) -> Any:
    whole = tensor.contiguous()
    if whole.dtype == torch.bfloat16:
        bits = whole.view(torch.int16).numpy()
        return openvino.Tensor(bits, list(whole.shape), openvino.Type.bf16)
    return whole.numpy()
