"""ONNX Runtime's CPU kernel of com.microsoft.GroupQueryAttention, called as attention."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from equivalence.backends.onnxruntime_attention import LOWEST
from equivalence.backends.onnxruntime_gqa_node import INPUTS, group_query, packed
from equivalence.case import AttentionCase
from equivalence.declaration import KnownFault
from equivalence.declaration import attention as declare
from equivalence.dtypes import Array


def supports(case: AttentionCase) -> bool | str:
    """True, or a limit of the operator that a case goes beyond."""
    if case.v_dim != case.head_dim or case.head_dim % 8:
        return "head_dim must be a multiple of 8, and values as wide"
    if case.kv_len < case.q_len:
        return "every query brings a key"
    return True


NAN_NOTE: Final = (
    "in float32 without softcap, a row whose visible scores are all NaN is zero wherever a key is "
    "hidden from it: of a prompt, all rows but the last"
)
LOWEST_NOTE: Final = (
    "in float32 without softcap, a row whose keys all have the lowest finite number as their bias "
    "is zero; it is a softmax with softcap, and in float16"
)
ZERO_NOTE: Final = "a scale of 0 is read as none given, and becomes 1/sqrt(head_dim)"
FLOAT32: Final = {"dtype": ("float32",), "softcap": (None,)}
FACTS: Final[dict[str, Any]] = {
    "arrays": "numpy",
    "dtypes": ("float32", "float16"),
    "causal": "lower_right",
    "head_order": "grouped",
    "layout": "BHSD",
    "profile": "eager",
    "grouped": True,
    "mask_and_causal": True,
    "supports": supports,
    "known_faults": (
        KnownFault(
            law="visible-nan-is-kept",
            trouble="nan-laundered",
            case=AttentionCase(
                q_len=2, kv_len=2, head_dim=16, causal="lower_right", values="steps", seed=1
            ),
            note=NAN_NOTE,
            where=FLOAT32,
        ),
        KnownFault(
            law="agrees-with-float64",
            trouble="outside-bound",
            case=AttentionCase(kv_len=2, head_dim=16, causal="lower_right", mask=LOWEST),
            note=LOWEST_NOTE,
            where={"mask.hidden": ("finfo.min",), **FLOAT32},
        ),
        *(
            KnownFault(
                law=law,
                trouble=trouble,
                case=AttentionCase(
                    kv_len=2, head_dim=16, causal="lower_right", scale=0.0, values="normal"
                ),
                note=ZERO_NOTE,
                where={"scale": (0.0,)},
            )
            for law, trouble in (
                ("agrees-with-float64", "outside-bound"),
                ("options-are-not-ignored", "ignored-option"),
            )
        ),
    ),
}


@declare(**FACTS)
def attention(
    query: Array,
    key: Array,
    value: Array,
    *,
    attn_mask: Array | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    window: int | None = None,
    sinks: Array | None = None,
    **more: Any,
) -> Array:
    """The last keys are this call's, as many as queries; those before them come as past.

    query ``[B, H, Sq, D]``, key and value ``[B, Hkv, Skv, D]`` -> ``[B, H, Sq, D]``, causal.
    """
    batch_size, num_heads, q_len, _ = query.shape
    past = key.shape[2] - q_len
    if attn_mask is not None and attn_mask.dtype == bool:
        attn_mask = np.where(attn_mask, 0.0, -np.inf).astype(query.dtype)
    chunks = np.full(batch_size, q_len, np.int32) if past and batch_size > 1 < q_len else None
    new = [packed(query), packed(key[:, :, past:]), packed(value[:, :, past:])]
    if more.get("one_tensor"):
        new = [np.concatenate(new, axis=-1)]
    output, _, _ = group_query(
        (num_heads, key.shape[1]), np.full(batch_size, key.shape[2]),
        **dict(zip(INPUTS, new, strict=False)), query_seqlens=chunks,
        past_key=key[:, :, :past], past_value=value[:, :, :past],
        attention_bias=attn_mask, head_sink=None if sinks is None else sinks.astype(query.dtype),
        cos_cache=more.get("cos_cache"), sin_cache=more.get("sin_cache"),
        attributes={
            "scale": scale, "softcap": softcap, "local_window_size": window,
            **more.get("attributes", {}),
        },
    )  # fmt: skip
    return output
