"""What a search finds in jax 0.10's dot_product_attention, shown again on every run."""

from __future__ import annotations

from typing import Final

from equivalence.case import AttentionCase
from equivalence.declaration import KnownFault
from equivalence.masks import Mask

FUTURE_KEYS: Final = KnownFault(
    law="agrees-with-float64",
    trouble="outside-bound",
    case=AttentionCase(
        kv_len=2,
        causal="upper_left",
        values="steps",
        mask=Mask(form="float", hidden="finfo.min", axes="", empty_rows=1),
    ),
    where={"mask.hidden": ("finfo.min",)},
    note=(
        "jax 0.10.2 hides keys with -0.7 times the largest float32, which is more than the lowest "
        "float32 of a bias: where that masks all that a row may see, it sees the future keys"
    ),
)

LOWEST_FLOAT64: Final = KnownFault(
    law="agrees-with-float64",
    trouble="non-finite",
    case=AttentionCase(dtype="float64", mask=Mask(form="float", hidden="finfo.min", empty_rows=1)),
    where={"dtype": ("float64",), "mask.hidden": ("finfo.min",)},
    note=(
        "jax 0.10.2 takes the softmax in float32 whatever the dtype, where the lowest float64 of a "
        "bias is -inf: a row that is masked with it throughout is NaN, and not a softmax"
    ),
)
