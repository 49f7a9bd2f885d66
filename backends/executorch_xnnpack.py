"""ExecuTorch with the XNNPACK delegate: SDPA exported for each shape, and run by its runtime.

The runtime reads the program's buffer in place: buffer, program and method are kept together.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from executorch.runtime import Runtime
from torch import Tensor, nn

from equivalence.backends.head_folding import group_size_of
from equivalence.backends.sdpa_module import SdpaModule
from equivalence.case import AttentionCase
from equivalence.declaration import attention as declare
from equivalence.errors import Unsupported

KEPT: Final = 64


class Lowered:
    """A program for one set of shapes, with the buffer that it reads."""

    def __init__(self, module: nn.Module, example: tuple[Tensor, ...]) -> None:
        exported = torch.export.export(module.eval(), example)
        lowered = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
        self._buffer = lowered.to_executorch().buffer
        self._program = Runtime.get().load_program(self._buffer)
        self._method = self._program.load_method("forward")

    def __call__(self, *tensors: Tensor) -> Tensor:
        """The first output."""
        found: Any = self._method.execute(tensors)[0]
        output: Tensor = found.clone()
        return output


@lru_cache(maxsize=KEPT)
def _lowered(
    shapes: tuple[tuple[int, ...], ...],
    dtypes: tuple[torch.dtype, ...],
    causal: bool,
    scale: float | None,
) -> Lowered:
    example = tuple(torch.zeros(s, dtype=d) for s, d in zip(shapes, dtypes, strict=True))
    return Lowered(SdpaModule(causal, scale), example)


def supports(case: AttentionCase) -> bool | str:
    """True, or why not."""
    return True if case.kv_len else "there is no key"


@declare(
    dtypes=("float64", "float32", "float16", "bfloat16"),
    causal="upper_left",
    head_order="grouped",
    layout="BHSD",
    profile="full",
    masked_rows="zeros",
    hidden_nan="leaks",
    deterministic=True,
    grouped=True,
    supports=supports,
    costly=True,
)
def xnnpack(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """query ``[B, H, Sq, D]``, key ``[B, Hkv, Skv, D]``, value ``[B, Hkv, Skv, Dv]``.

    Returns ``[B, H, Sq, Dv]``. Each shape costs an export of a second or more.
    """
    group_size_of(query.shape[1], key.shape[1])
    if key.shape[2] == 0:
        raise Unsupported("there is no key")
    given = [query, key, value, *([] if attn_mask is None else [attn_mask])]
    given = [tensor.contiguous() for tensor in given]
    shapes = tuple(tuple(tensor.shape) for tensor in given)
    dtypes = tuple(tensor.dtype for tensor in given)
    return _lowered(shapes, dtypes, is_causal, scale)(*given)
