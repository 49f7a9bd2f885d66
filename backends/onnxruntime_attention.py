"""ONNX Runtime's CPU kernel of ONNX's own Attention operator, opsets 23 and 24."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from equivalence.backends.onnx_node import DTYPES, run_node
from equivalence.case import AttentionCase
from equivalence.declaration import KnownFault
from equivalence.declaration import attention as declare
from equivalence.dtypes import Array
from equivalence.masks import Mask

LOWEST: Final = Mask(form="float", hidden="finfo.min", empty_rows=1)
LOWEST_NOTE: Final = (
    "a row whose keys all have the lowest finite number as their mask is zero: ONNX Runtime takes "
    "it for -inf, where the operator adds it"
)


def supports(case: AttentionCase) -> bool | str:
    """True, or a limit of the kernel that a case goes beyond."""
    if case.scale is not None and case.scale <= 0:
        return f"scale={case.scale} must be above zero"
    if case.kv_len == 0:
        return "there is no key"
    return True


def _lowest(law: str, trouble: str, case: AttentionCase) -> KnownFault:
    where = {"mask.hidden": ("finfo.min",)}
    return KnownFault(law=law, trouble=trouble, case=case, note=LOWEST_NOTE, where=where)


FACTS: Final[dict[str, Any]] = {
    "arrays": "numpy",
    "dtypes": DTYPES,
    "head_order": "grouped",
    "layout": "BHSD",
    "profile": "single",  # doubles are good to about 1e-7; 16 bit is judged as eager
    "masked_rows": "zeros",
    "hidden_nan": "leaks",
    "grouped": True,
    "mask_and_causal": True,
    "supports": supports,
    "known_faults": (
        _lowest("agrees-with-float64", "outside-bound", AttentionCase(mask=LOWEST)),
        _lowest(
            "visible-nan-is-kept",
            "nan-laundered",
            AttentionCase(kv_len=2, mask=LOWEST, values="one_hot", seed=1),
        ),
    ),
}


@declare(causal="upper_left", **FACTS)
def attention(
    query: Array,
    key: Array,
    value: Array,
    *,
    attn_mask: Array | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    softcap: float | None = None,
) -> Array:
    """Opset 23, keys and values of this call only.

    query ``[B, H, Sq, D]``, key ``[B, Hkv, Skv, D]``, value ``[B, Hkv, Skv, Dv]`` ->
    ``[B, H, Sq, Dv]``.
    """
    trio = {"Q": query, "K": key, "V": value, "attn_mask": attn_mask}
    (output,) = run_node(
        "Attention", trio, ("Y",), opset=23, is_causal=int(is_causal), scale=scale, softcap=softcap
    )
    return output


@declare(causal="lower_right", **FACTS)
def attention_lengths(
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
    """Opset 24 with ``nonpad_kv_seqlen``, the keys in use of each row; causal counts from there."""
    lengths = np.full(query.shape[0], key.shape[2]) if kv_lengths is None else kv_lengths
    inputs = {
        "Q": query, "K": key, "V": value, "attn_mask": attn_mask,
        "past_key": None, "past_value": None, "nonpad_kv_seqlen": lengths.astype(np.int64),
    }  # fmt: skip
    (output,) = run_node(
        "Attention", inputs, ("Y",), opset=24, is_causal=int(is_causal), scale=scale,
        softcap=softcap,
    )  # fmt: skip
    return output
