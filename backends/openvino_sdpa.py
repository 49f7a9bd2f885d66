"""OpenVINO's SDPA on the CPU, traced from torch, in forced float32 and in its default precision."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

import torch
from torch import Tensor

from equivalence.backends.head_folding import group_size_of
from equivalence.backends.openvino_compiled import FORCED, Compiled
from equivalence.backends.sdpa_module import SdpaModule
from equivalence.case import AttentionCase
from equivalence.declaration import KnownFault
from equivalence.declaration import attention as declare
from equivalence.errors import Unsupported
from equivalence.masks import Mask

DTYPES: Final = ("float64", "float32", "float16", "bfloat16")
NO_KEYS: Final = "no key at all gives whatever lies in memory"

MASK_BY_HEAD: Final = KnownFault(
    law="agrees-with-float64",
    trouble="crash",
    case=AttentionCase(group_size=2, kv_len=2, mask=Mask(axes="h", pattern="padding")),
    where={"group_size": tuple(range(2, 129)), "mask.axes": ("h", "bh", "hq", "bhq")},
    note=(
        "OpenVINO 2026.4 converts enable_gqa with a mask that differs by head, and then raises "
        "at every inference: heads are split in groups, and the mask is not"
    ),
)
MEAN_IN_FLOAT64: Final = KnownFault(
    law="masked-rows",
    trouble="masked-rows",
    case=AttentionCase(kv_len=2, dtype="float64", mask=Mask(empty_rows=1)),
    where={"dtype": ("float64",)},
    note=(
        "OpenVINO 2026.4 computes a float64 model in float32 and clamps -inf to the lowest float32 "
        "on the way: a row that sees no key is the mean of the values, and NaN in other formats"
    ),
)

LOWEST_OVERFLOWS: Final = KnownFault(
    law="agrees-with-float64",
    trouble="non-finite",
    case=AttentionCase(mask=Mask(form="float", hidden="finfo.min", empty_rows=1)),
    where={"mask.hidden": ("finfo.min",)},
    note=(
        "OpenVINO 2026.4 in its default bfloat16 rounds a mask of the lowest float32 to -inf: a "
        "row that is masked with it throughout is NaN, and the mean of the values in float32"
    ),
)


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


def _declared(profile: str, *faults: KnownFault) -> Callable[[Any], Any]:
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
        known_faults=(MASK_BY_HEAD, MEAN_IN_FLOAT64, *faults),
    )


@_declared("single")
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


@_declared("bf16_inside", LOWEST_OVERFLOWS)
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
