"""OpenVINO's SDPA on the CPU, traced from torch, in forced float32 and in its default precision."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

import torch
from torch import Tensor

from equivalence.backends.head_folding import group_size_of
from equivalence.backends.openvino_compiled import BFLOAT16_HERE, FORCED, Compiled
from equivalence.backends.openvino_faults import (
    LOWEST_OVERFLOWS,
    MASK_BY_HEAD,
    MEAN_IN_BFLOAT16,
    MEAN_IN_FLOAT64,
)
from equivalence.backends.sdpa_module import SdpaModule
from equivalence.case import AttentionCase
from equivalence.declaration import KnownFault
from equivalence.declaration import attention as declare
from equivalence.errors import Unsupported

DTYPES: Final = ("float64", "float32", "float16", "bfloat16")
NO_KEYS: Final = "no key at all gives whatever lies in memory"


@cache
def _compiled(
    dtype: torch.dtype, mask: torch.dtype | None, causal: bool, scale: float | None, forced: bool
) -> Compiled:
    tiny = torch.zeros(2, 4, 3, 8, dtype=dtype)
    example = [tiny, tiny[:, :2], tiny[:, :2]]
    if mask is not None:
        example.append(torch.zeros(2, 4, 3, 3, dtype=mask))
    return Compiled(SdpaModule(causal, scale), example, FORCED if forced else {})


def supports(case: AttentionCase) -> bool | str:
    """True, or why not."""
    return True if case.kv_len else NO_KEYS


def _attend(
    operands: tuple[Tensor, Tensor, Tensor],
    mask: Tensor | None,
    causal: bool,
    scale: float | None,
    forced: bool,
) -> Tensor:
    query, key, _ = operands
    group_size_of(query.shape[1], key.shape[1])
    if key.shape[2] == 0:
        raise Unsupported(NO_KEYS)
    run = _compiled(query.dtype, None if mask is None else mask.dtype, causal, scale, forced)
    return run(*operands, *(() if mask is None else (mask,)))


EVERYWHERE: Final = (MASK_BY_HEAD, MEAN_IN_FLOAT64)
IN_FLOAT32: Final = EVERYWHERE if BFLOAT16_HERE else (*EVERYWHERE, MEAN_IN_BFLOAT16)
BY_DEFAULT: Final = (*EVERYWHERE, LOWEST_OVERFLOWS) if BFLOAT16_HERE else IN_FLOAT32


def _declared(profile: str, faults: tuple[KnownFault, ...]) -> Callable[[Any], Any]:
    return declare(
        dtypes=DTYPES,
        causal="upper_left",
        head_order="grouped",
        layout="BHSD",
        profile=profile,
        masked_rows="nan",
        hidden_nan="leaks",
        deterministic=True,
        grouped=True,
        supports=supports,
        known_faults=faults,
    )


@_declared("single", IN_FLOAT32)
def sdpa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """A traced SDPA with grouped heads, computed in float32 whatever the dtype."""
    return _attend((query, key, value), attn_mask, is_causal, scale, True)


@_declared("bf16_inside", BY_DEFAULT)
def sdpa_default(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """The same in the precision that OpenVINO chooses: bfloat16 where the processor has it."""
    return _attend((query, key, value), attn_mask, is_causal, scale, False)
