"""coremltools with its known faults mended before it converts: the search must be green."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from equivalence.converters.formulations.caches import IndexedWrite, SliceWrite
from equivalence.converters.formulations.fused import Fused, SdpaGqa, SdpaRepeatKV
from equivalence.coreml.conversion import ROUTES, TARGETS
from equivalence.coreml.converted import Converted, convert
from equivalence.declaration import converter as declare


class EmptyRows(nn.Module):
    """Puts into rows that see no key what the source has there: zero from SDPA, else NaN."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        output = self.module(query, key, value, mask)
        if mask.dtype != torch.bool:
            mask = mask > -3e38 if query.dtype == torch.float32 else mask > -7e4
        seen = mask.to(query.dtype).amax(-1, keepdim=True) > 0
        filling = 0.0 if isinstance(self.module, Fused) else float("nan")
        return torch.where(seen, output, torch.full_like(output, filling))


def mended(module: nn.Module, example_inputs: Sequence[Tensor]) -> nn.Module:
    """The same module in words that coremltools 9.0 converts rightly."""
    if isinstance(module, SdpaGqa):
        module = SdpaRepeatKV(causal=module.causal, scale=module.scale, square=module.square)
    if isinstance(module, IndexedWrite):
        module.__class__ = SliceWrite
    is_attention = len(example_inputs) == 4 and example_inputs[3].ndim == 4
    return EmptyRows(module) if is_attention else module


@declare(
    dtypes=("float32", "float16"), profile="graph", dynamic=True, targets=TARGETS, routes=ROUTES
)
def patched(
    module: nn.Module,
    example_inputs: Sequence[Tensor],
    *,
    dynamic_shapes: Any = None,
    target: str = "iOS18",
    route: str = "trace",
) -> Converted:
    """Both routes, without the faults."""
    return convert(
        mended(module, example_inputs),
        example_inputs,
        dynamic_shapes=dynamic_shapes,
        target=target,
        route=route,
    )
