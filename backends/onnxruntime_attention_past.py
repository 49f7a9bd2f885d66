"""ONNX Runtime's CPU kernel of ONNX's own Attention operator, with older keys as its past."""

from __future__ import annotations

from equivalence.backends.onnx_node import run_node
from equivalence.backends.onnxruntime_attention import FACTS, supports
from equivalence.case import AttentionCase
from equivalence.declaration import attention as declare
from equivalence.dtypes import Array


def past_supports(case: AttentionCase) -> bool | str:
    """True, or why not: without a past, the operator counts from the first key."""
    if case.causal is not None and case.q_len > case.kv_len:
        return "with more queries than keys there is no past"
    return supports(case)


@declare(causal="lower_right", **{**FACTS, "supports": past_supports})
def attention_past(
    query: Array,
    key: Array,
    value: Array,
    *,
    attn_mask: Array | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    softcap: float | None = None,
) -> Array:
    """Opset 23: the last keys are this call's, as many as queries; those before come as past."""
    past = key.shape[2] - min(query.shape[2], key.shape[2])
    inputs = {
        "Q": query, "K": key[:, :, past:], "V": value[:, :, past:], "attn_mask": attn_mask,
        "past_key": key[:, :, :past], "past_value": value[:, :, :past],
    }  # fmt: skip
    output, *_ = run_node(
        "Attention", inputs, ("Y", "present_key", "present_value"), opset=23,
        is_causal=int(is_causal), scale=scale, softcap=softcap,
    )  # fmt: skip
    return output
