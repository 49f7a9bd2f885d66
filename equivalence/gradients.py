"""Gradients of attention in float64, and how far computed ones may be off.

With P the probabilities, dO the upstream gradient and t the slope of the softcap (1 without):
    dP_ij = dO_i . v_j,     delta_i = dO_i . o_i,     dS_ij = p_ij (dP_ij - delta_i) t_ij
    dV_j = sum_i p_ij dO_i,     dQ_i = scale sum_j dS_ij k_j,     dK_j = scale sum_i dS_ij q_i
(Dao et al. 2022, FlashAttention, appendix B.2); dK and dV sum over the query heads of a group.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from equivalence.bounds import score_error
from equivalence.dtypes import Array, format_of
from equivalence.inputs import AttentionInputs
from equivalence.mixture import gamma
from equivalence.profiles import Profile
from equivalence.reference import Attention

OPERANDS = ("query", "key", "value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradients:
    """Exact gradients of query, key and value, what may be off in each, and the largest dP."""

    exact: tuple[Array, Array, Array]
    allowed: tuple[Array, Array, Array]
    largest_product: float


def gradients(
    inputs: AttentionInputs,
    exact: Attention,
    output_error: Array,
    upstream: Array,
    profile: Profile,
) -> Gradients:
    """Gradients for ``upstream`` ``[B, H, Sq, Dv]``; ``output_error`` bounds the forward output.

    The allowance counts, for every stored intermediate (dP, dS, the slope, the scaled dS, and the
    per-head sums), one rounding of the storage format where the profile stores any, and lets the
    probability of key j be off by the factor e^D_j / sum_k p_k e^-D_k. Derivation: docs/bound.md.
    """
    u, u_a = profile.store_unit(inputs.dtype), profile.accumulate_unit(inputs.dtype)
    stores = bool(profile.score_roundings or profile.probability_roundings)
    count = profile.score_roundings + profile.probability_roundings + 2 if stores else 0
    step = count * u + 6 * u_a
    eta = format_of(inputs.dtype).half_subnormal if stores else 0.0
    u_out = format_of(inputs.dtype).unit_roundoff

    key, value = inputs.key[:, inputs.kv_head_of], inputs.value[:, inputs.kv_head_of]
    p, scale = exact.probabilities, inputs.scale_value
    seen = exact.visible
    products = np.matmul(upstream, value.swapaxes(-1, -2))
    product_sizes = np.matmul(np.abs(upstream), np.abs(value).swapaxes(-1, -2))
    delta = (upstream * exact.output).sum(-1, keepdims=True)
    delta_size = (np.abs(upstream) * np.abs(exact.output)).sum(-1, keepdims=True)
    slope = np.ones_like(p)
    off = np.minimum(score_error(inputs, exact, profile), 50.0)
    slope_off = np.zeros_like(p)
    if inputs.softcap is not None:
        slope = 1 - (exact.capped / inputs.softcap) ** 2
        slope_off = np.minimum(2 * (off / inputs.softcap + 8 * u_a + step), 1.0)
    d_scores = p * (products - delta) * slope

    shrunk = (p * np.exp(-off)).sum(-1, keepdims=True)
    shrunk = np.where(shrunk > 0, shrunk, 1.0)
    p_off = np.minimum(p * (np.exp(off) / shrunk - 1), 1.0) + p * (step + gamma(p.shape[-1], u_a))
    p_off = np.where(seen, p_off + eta, 0.0)
    product_off = (gamma(value.shape[-1] + 2, u_a) + step) * product_sizes + eta
    delta_off = (np.abs(upstream) * output_error).sum(-1, keepdims=True)
    delta_off = delta_off + (gamma(value.shape[-1] + 2, u_a) + step) * delta_size
    both_off = product_off + delta_off + step * (np.abs(products) + np.abs(delta))
    p_high = p + p_off
    s_off = p_off * np.abs(products - delta) + p_high * both_off
    s_off = s_off * (np.abs(slope) + slope_off) + np.abs(p * (products - delta)) * slope_off
    s_off = np.where(seen, s_off * (1 + step) + step * np.abs(d_scores) + eta, 0.0)

    def summed(weights: Array, weights_off: Array, rows: Array, terms: int) -> tuple[Array, Array]:
        total = np.matmul(weights, rows)
        size = np.matmul(np.abs(weights) + weights_off, np.abs(rows))
        error = np.matmul(weights_off, np.abs(rows)) + (gamma(terms, u_a) + step) * size
        return total, error

    kv_len, q_len = p.shape[-1], p.shape[-2]
    d_query, query_off = summed(scale * d_scores, abs(scale) * s_off, key, kv_len + 2)
    transposed = d_scores.swapaxes(-1, -2), s_off.swapaxes(-1, -2)
    group = int(np.bincount(inputs.kv_head_of).max())
    terms = q_len * group + 2
    d_key, key_off = summed(scale * transposed[0], abs(scale) * transposed[1], inputs.query, terms)
    d_value, value_off = summed(p.swapaxes(-1, -2), p_off.swapaxes(-1, -2), upstream, terms)
    kv_heads, head_of = inputs.key.shape[1], inputs.kv_head_of
    results = (
        d_query,
        _by_kv_head(d_key, head_of, kv_heads),
        _by_kv_head(d_value, head_of, kv_heads),
    )
    errors = (
        query_off,
        _by_kv_head(key_off, head_of, kv_heads),
        _by_kv_head(value_off, head_of, kv_heads),
    )
    factor = 2.0 if profile.name == "f64" else 1.0
    eta_out = format_of(inputs.dtype).half_subnormal + (2.0**-125 if u_a > 2.0**-50 else 0.0)
    allowed = tuple(
        factor * (error * (1 + u_out) + u_out * np.abs(result) + eta_out * (1 + terms))
        for result, error in zip(results, errors, strict=True)
    )
    return Gradients(
        exact=results,
        allowed=(allowed[0], allowed[1], allowed[2]),
        largest_product=float(np.abs(products).max(initial=0.0)),
    )


def _by_kv_head(per_head: Array, head_of: Array, kv_heads: int) -> Array:
    """Sum what each query head contributes to the key/value head that it reads."""
    total = np.zeros((per_head.shape[0], kv_heads, *per_head.shape[2:]))
    np.add.at(total.swapaxes(0, 1), head_of, per_head.swapaxes(0, 1))
    return total
