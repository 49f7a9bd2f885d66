"""How far off a correct layer of attention may be: the bound of attention between two products.

A projected operand x W^T is off by e = g |x| |W|^T + f, where g grows with its length and f is what
underflow loses. Scores are then off by |scale| (|q| e_k + e_q |k| + e_q e_k) before attention adds
its own errors, which are those of operands that are larger by e; values are off by g in units of
|x| |W_V|^T. The output of attention is off by B (docs/bound.md), so y is off by |W_O| B and by its
own product.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from equivalence.bounds import SHIFT_STEPS, Allowance, allowance, weights_of
from equivalence.converters.projected import Layer, ProjectedInputs
from equivalence.dtypes import Array, format_of
from equivalence.mixture import Mixture, compound, evaluated, gamma, joined, mixture_bound
from equivalence.profiles import Profile
from equivalence.reference import attention


def layer_allowance(inputs: ProjectedInputs, exact: Layer, profile: Profile) -> Allowance:
    """The bound of every element of the output ``[B, 1, Sq, M]`` under ``profile``."""
    u, u_a = profile.store_unit(inputs.dtype), profile.accumulate_unit(inputs.dtype)
    n_w, eta = profile.projection_roundings, format_of(profile.store or inputs.dtype).half_subnormal
    tau, width = profile.flush(inputs.dtype), inputs.hidden.shape[-1]
    grown = float(joined(compound(n_w, u), gamma(width + 2, u_a)))
    lost = n_w * eta + (width + 1) * tau
    asked = inputs.attention.but(dtype=inputs.dtype)
    inner = attention(asked)

    def size(x: Array, role: str, like: Array) -> Array:
        """|x| |W|^T, by head."""
        made = np.abs(x) @ np.abs(inputs.weights[role]).T
        return np.asarray(made.reshape(*made.shape[:2], like.shape[1], -1).swapaxes(1, 2))

    query_off = grown * size(inputs.query_hidden, "query_projection", asked.query) + lost
    key_off = grown * size(inputs.hidden, "key_projection", asked.key) + lost
    of = asked.kv_head_of
    query, key = np.abs(asked.query), np.abs(asked.key)[:, of]
    turned = key_off[:, of].swapaxes(-1, -2)
    moved = query @ turned + query_off @ key.swapaxes(-1, -2) + query_off @ turned
    moved = abs(asked.scale_value) * moved
    # Attention's own errors: those of operands that are as large as the computed ones can be.
    larger = asked.but(query=query + query_off, key=np.abs(asked.key) + key_off)
    dots = larger.query @ larger.key[:, of].swapaxes(-1, -2)
    weights = weights_of(
        larger, replace(inner, dots=dots, capped=abs(asked.scale_value) * dots), profile
    )
    shifted = 2 * gamma(SHIFT_STEPS, u_a) * moved.max(axis=-1, keepdims=True, initial=0.0)
    mixture = Mixture(
        probabilities=weights.probabilities,
        scores_off=np.where(weights.visible, weights.scores_off + moved + shifted, 0.0),
        visible=weights.visible,
        value=asked.value,
        head_of=of,
        output=inner.output,
        lowest=asked.value.min(axis=(1, 2), initial=np.inf),
        highest=asked.value.max(axis=(1, 2), initial=-np.inf),
        magnitude=size(inputs.hidden, "value_projection", asked.value),
        value_error=grown,
        value_floor=2 * lost,
    )
    off, furthest, natural = mixture_bound(mixture, profile, inputs.dtype)
    matrix = np.abs(inputs.weights["output_projection"])

    def through(x: Array) -> Array:
        """|x| |W_O|^T of ``[B, H, Sq, Dv]``."""
        rows = x.swapaxes(1, 2)
        return np.asarray((rows.reshape(*rows.shape[:2], -1) @ matrix.T)[:, None])

    summed = float(joined(compound(n_w, u), gamma(matrix.shape[1] + 2, u_a)))
    made = through(off) * (1 + summed) + summed * through(np.abs(inner.output))
    made = made + lost + (matrix.shape[1] + 1) * tau
    return Allowance(
        allowed=evaluated(made, profile),
        furthest=through(furthest),
        natural=through(natural) + u * np.abs(exact.output),
        in_domain=_in_domain(inputs, profile),
    )


def _in_domain(inputs: ProjectedInputs, profile: Profile) -> Array:
    """Rows that attention can compute, where every projection fits the format: ``[B, 1, Sq]``."""
    asked = inputs.attention.but(dtype=inputs.dtype)
    inside = allowance(asked, attention(asked), profile).in_domain.all(axis=1, keepdims=True)
    limit = format_of(profile.store or inputs.dtype).max_finite / 2
    for x, role in (
        (inputs.query_hidden, "query_projection"),
        (inputs.hidden, "key_projection"),
        (inputs.hidden, "value_projection"),
    ):
        made = np.abs(x) @ np.abs(inputs.weights[role]).T
        inside &= bool(made.max(initial=0.0) <= limit)
    return np.asarray(inside)
