"""Latent attention in float64, to be checked by eye against DeepSeek-V2 (arXiv:2405.04434).

k^C_{j,h} = W^UK_h c_j,   v^C_{j,h} = W^UV_h c_j                        (eq. 10 and 11)
k_{j,h} = [k^C_{j,h}; k^R_j],   q_{t,h} = [q^C_{t,h}; q^R_{t,h}]        (eq. 16 and 17)
o_{t,h} = sum_{j <= t} softmax_j(q_{t,h} . k_{j,h} / sqrt(d_h + d_R)) v^C_{j,h}      (eq. 18)

The rotary key k^R is one for all heads; the scale never sees the latent width d_c.
"""

from __future__ import annotations

import numpy as np

from equivalence.dtypes import Array
from equivalence.latent.inputs import LatentInputs
from equivalence.reference import Attention


def latent_attention(inputs: LatentInputs) -> Attention:
    """Evaluate ``inputs`` in float64, expanded: every key and value is rebuilt."""
    keys_content = per_head(inputs.latent, inputs.w_uk)
    values = per_head(inputs.latent, inputs.w_uv)
    dots = np.matmul(inputs.query_content, keys_content.swapaxes(-1, -2))
    dots = dots + np.matmul(inputs.query_rotary, inputs.key_rotary[:, None].swapaxes(-1, -2))
    visible = np.broadcast_to(inputs.visible, dots.shape)

    scores = np.where(visible, inputs.scale_value * dots, -np.inf)
    top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0.0)
    weights = np.exp(scores - top)
    total = weights.sum(axis=-1, keepdims=True)
    probabilities = weights / np.where(total > 0, total, 1.0)
    with np.errstate(divide="ignore"):
        lse = (top + np.log(total))[..., 0]
    return Attention(
        output=np.matmul(probabilities, values),
        dots=dots,
        capped=inputs.scale_value * dots,
        scores=scores,
        probabilities=probabilities,
        seen=visible.sum(axis=-1),
        visible=visible,
        lse=lse,
        sink_probability=None,
    )


def per_head(latent: Array, up_projection: Array) -> Array:
    """W c_j for each head and token: ``[B, S, dc]`` and ``[H, e, dc]`` give ``[B, H, S, e]``."""
    expanded: Array = np.matmul(latent[:, None], up_projection.swapaxes(-1, -2))
    return expanded
