"""The output ``qk_matmul_output`` of ONNX Runtime's Attention: what it leaves undone is done here.

Mode 0 is scores, 1 behind the softcap, 2 with mask and causal order, 3 the weights.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from equivalence.backends.onnx_node import run_node
from equivalence.backends.onnxruntime_attention import FACTS, LOWEST
from equivalence.case import AttentionCase
from equivalence.declaration import KnownFault
from equivalence.declaration import attention as declare
from equivalence.dtypes import Array

NOTE: Final = (
    "mode 2 holds the lowest finite number, not -inf, where is_causal or a False hides: a mask "
    "with that number ties with it, and a row without keys looks as if it saw them all"
)


def _tie(law: str, trouble: str, case: AttentionCase) -> KnownFault:
    where = {"mask.hidden": ("finfo.min",)}
    return KnownFault(law=law, trouble=trouble, case=case, note=NOTE, where=where)


LOWEST_CAUSAL: Final = AttentionCase(kv_len=2, causal="upper_left", values="steps", mask=LOWEST)
TIES: Final = (
    _tie("agrees-with-float64", "outside-bound", LOWEST_CAUSAL),
    _tie("causality", "future-keys", LOWEST_CAUSAL.but(q_len=2, values="ramp")),
)


def _softmax(scores: Array) -> Array:
    with np.errstate(all="ignore"):
        top = scores.max(axis=-1, keepdims=True)
        weights = np.exp(scores - np.where(np.isneginf(top), 0.0, top))
        total = weights.sum(axis=-1, keepdims=True)
        normalised: Array = weights / np.where(total == 0, 1.0, total)
    return normalised


def _hidden(scores: Array, attn_mask: Array | None, is_causal: bool) -> Array:
    """Scores with the mask added, and -inf above the diagonal from the upper left."""
    if attn_mask is not None and attn_mask.dtype == bool:
        scores = np.where(attn_mask, scores, -np.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask.astype(np.float64)
    later = np.triu(np.ones(scores.shape[-2:], bool), 1)
    return np.where(later, -np.inf, scores) if is_causal else scores


def _of_mode(mode: int) -> Any:
    def made(
        query: Array,
        key: Array,
        value: Array,
        *,
        attn_mask: Array | None = None,
        is_causal: bool = False,
        scale: float | None = None,
        softcap: float | None = None,
    ) -> Array:
        inputs = {"Q": query, "K": key, "V": value, "attn_mask": attn_mask}
        _, found = run_node(
            "Attention", inputs, ("Y", "", "", "qk_matmul_output"), opset=23, scale=scale,
            is_causal=int(is_causal), softcap=softcap, qk_matmul_output_mode=mode,
        )  # fmt: skip
        scores = found.astype(np.float64)
        if mode == 0 and softcap:
            scores = softcap * np.tanh(scores / softcap)
        if mode < 2:
            scores = _hidden(scores, attn_mask, is_causal)
        weights = scores if mode == 3 else _softmax(scores)
        wide = np.repeat(value.astype(np.float64), query.shape[1] // key.shape[1], axis=1)
        output: Array = (weights @ wide).astype(query.dtype)
        return output

    made.__name__ = made.__qualname__ = f"mode_{mode}"
    made.__doc__ = f"Attention from what qk_matmul_output_mode={mode} gives out."
    about: dict[str, Any] = {**FACTS, "causal": "upper_left"}
    if mode < 2:  # the mask is added here
        about["known_faults"] = ()
    if mode == 2:
        about |= {"known_faults": TIES, "masked_rows": None}
    return declare(**about)(made)


mode_0 = _of_mode(0)
mode_1 = _of_mode(1)
mode_2 = _of_mode(2)
mode_3 = _of_mode(3)
