"""Attention in float64, written to be checked by eye against eq. 1 of Vaswani et al. (2017).

s_ij = softcap(scale * q_i . k_j) + bias_ij        for every key j that query i may see
p_ij = exp(s_ij - m_i) / (sum_j exp(s_ij - m_i) + exp(sink - m_i)),   m_i = max_j s_ij
o_i  = sum_j p_ij v_j,      lse_i = m_i + log(sum_j exp(s_ij - m_i))
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from equivalence.dtypes import Array
from equivalence.inputs import AttentionInputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Exact attention and the intermediate values that the error bound needs.

    output ``[B, H, Sq, Dv]`` (zero where a row sees no key); dots q.k, scores (after softcap and
    bias), probabilities and visible ``[B, H, Sq, Skv]``; lse ``[B, H, Sq]``, without the sink
    and -inf on empty rows; sink_probability ``[B, H, Sq]`` or None; seen, how many keys each query
    sees, int ``[B, H, Sq]``.
    """

    output: Array
    dots: Array
    capped: Array
    scores: Array
    probabilities: Array
    visible: Array
    seen: Array
    lse: Array
    sink_probability: Array | None


def with_values(exact: Attention, value: Array) -> Attention:
    """The same attention to other values ``[B, H, Skv, Dv]``, one for each query head."""
    return replace(exact, output=np.matmul(exact.probabilities, value))


def attention(inputs: AttentionInputs) -> Attention:
    """Evaluate ``inputs`` in float64."""
    key = inputs.key[:, inputs.kv_head_of]
    value = inputs.value[:, inputs.kv_head_of]
    dots = np.matmul(inputs.query, key.swapaxes(-1, -2))
    visible = np.broadcast_to(inputs.visible, dots.shape)

    capped = inputs.scale_value * dots
    if inputs.softcap is not None:
        capped = inputs.softcap * np.tanh(capped / inputs.softcap)
    scores = capped if inputs.bias is None else capped + inputs.bias
    scores = np.where(visible, scores, -np.inf)

    highest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(highest), highest, 0.0)
    weights = np.exp(scores - top)
    total = weights.sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = (top + np.log(total))[..., 0]
    sink_probability = None
    if inputs.sinks is not None:
        # A sink far above the scores leaves nothing of them, but their own sum stays above.
        larger = np.maximum(highest, inputs.sinks[None, :, None, None])
        weights = weights * np.exp(highest - larger)
        sink = np.exp(inputs.sinks[None, :, None, None] - larger)
        total = weights.sum(axis=-1, keepdims=True) + sink
        sink_probability = (sink / total)[..., 0]
    probabilities = weights / np.where(total > 0, total, 1.0)
    return Attention(
        output=np.matmul(probabilities, value),
        dots=dots,
        capped=capped,
        scores=scores,
        probabilities=probabilities,
        visible=visible,
        seen=np.broadcast_to(inputs.visible.sum(axis=-1), visible.shape[:3]),
        lse=lse,
        sink_probability=sink_probability,
    )
