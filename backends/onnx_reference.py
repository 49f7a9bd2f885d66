"""onnx's ReferenceEvaluator, in numpy: what the standard's own package says Attention means."""

from __future__ import annotations

from typing import Final

import numpy as np

from equivalence.backends.onnx_node import run_node
from equivalence.case import AttentionCase
from equivalence.declaration import KnownFault
from equivalence.declaration import attention as declare
from equivalence.dtypes import Array
from equivalence.masks import Mask

BROADCAST_MASK: Final = KnownFault(
    law="agrees-with-float64",
    trouble="outside-bound",
    case=AttentionCase(q_len=2, kv_len=2, causal="lower_right", values="steps", mask=Mask(axes="")),
    note=(
        "with is_causal and a mask whose query axis has length one, every query sees what the "
        "first one may: the causal order is made at the size of the mask"
    ),
    where={"mask.axes": ("", "b", "h", "bh")},
)
SCALE: Final = KnownFault(
    law="agrees-with-float64",
    trouble="outside-bound",
    case=AttentionCase(kv_len=2, dtype="float64", scale=0.5, values="one_hot"),
    note="the square root of a given scale is rounded to float32, for float64 inputs too",
    where={"dtype": ("float64",), "scale": (0.5, 0.1)},
)
BELOW_ZERO: Final = KnownFault(
    law="agrees-with-float64",
    trouble="non-finite",
    case=AttentionCase(scale=-0.5, values="one_hot"),
    note="query and key are scaled by the square root of the scale, NaN for one below 0",
    where={"scale": (-0.5,)},
)


def supports(case: AttentionCase) -> bool | str:
    """True, or a limit of the evaluator that a case goes beyond."""
    return "there is no key" if case.kv_len == 0 else True


@declare(
    arrays="numpy",
    dtypes=("float64", "float32", "float16", "bfloat16"),
    causal="lower_right",
    head_order="grouped",
    layout="BHSD",
    profile="full",
    masked_rows="zeros",
    hidden_nan="leaks",
    deterministic=True,
    grouped=True,
    mask_and_causal=True,
    supports=supports,
    known_faults=(BROADCAST_MASK, SCALE, BELOW_ZERO),
)
def attention(
    query: Array,
    key: Array,
    value: Array,
    *,
    attn_mask: Array | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    softcap: float | None = None,
    kv_lengths: Array | None = None,
) -> Array:
    """Attention of opset 24, with ``nonpad_kv_seqlen``: every operation rounds to the dtype.

    query ``[B, H, Sq, D]``, key ``[B, Hkv, Skv, D]``, value ``[B, Hkv, Skv, Dv]`` ->
    ``[B, H, Sq, Dv]``.
    """
    lengths = np.full(query.shape[0], key.shape[2]) if kv_lengths is None else kv_lengths
    inputs = {
        "Q": query, "K": key, "V": value, "attn_mask": attn_mask,
        "past_key": None, "past_value": None, "nonpad_kv_seqlen": lengths.astype(np.int64),
    }  # fmt: skip
    (output,) = run_node(
        "Attention", inputs, ("Y",), opset=24, by="reference", is_causal=int(is_causal),
        scale=scale, softcap=softcap,
    )  # fmt: skip
    return output
