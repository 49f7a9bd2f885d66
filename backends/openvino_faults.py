"""What a search finds in OpenVINO 2026.4's SDPA, shown again on every run.

Two of them depend on whether the processor computes in bfloat16 (AVX-512 BF16 or AMX).
"""

from __future__ import annotations

from typing import Final

from equivalence.case import AttentionCase
from equivalence.declaration import KnownFault
from equivalence.masks import Mask

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
MEAN_IN_BFLOAT16: Final = KnownFault(
    law="masked-rows",
    trouble="masked-rows",
    case=AttentionCase(dtype="bfloat16", mask=Mask(empty_rows=1)),
    where={"dtype": ("bfloat16",), "mask.form": ("bool",)},
    note=(
        "OpenVINO 2026.4 computes bfloat16 in float32 where the processor has none: a row that a "
        "boolean mask hides is the mean of the values, and NaN in other formats"
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
