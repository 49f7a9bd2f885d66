"""Gradients of attention in float64, and how far computed ones may be off.

With P the probabilities, dO the upstream gradient and t the slope of the softcap (1 without):
    dP_ij = dO_i . v_j,     delta_i = dO_i . o_i,     dS_ij = p_ij (dP_ij - delta_i) t_ij
    dV_j = sum_i p_ij dO_i,     dQ_i = scale sum_j dS_ij k_j,     dK_j = scale sum_i dS_ij q_i
(Dao et al. 2022, FlashAttention, appendix B.2); dK and dV sum over the query heads of a group.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from equivalence.bounds import LSE_STEPS, Weights, lse_roundings, score_error, weights_of
from equivalence.dtypes import Array, format_of
from equivalence.inputs import AttentionInputs
from equivalence.mixture import (
    ENORMOUS,
    SCORE_ERROR_CAP,
    compound,
    evaluated,
    gamma,
    joined,
)
from equivalence.profiles import Profile
from equivalence.reference import Attention

OPERANDS = ("query", "key", "value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradients:
    """Exact gradients of query, key and value, what may be off in each, and the largest dP."""

    exact: tuple[Array, Array, Array]
    allowed: tuple[Array, Array, Array]
    largest_product: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """weights @ rows, what that is off by before the roundings of the sum, and what these scale.

    Each of the shape of the gradient of one operand, for every query head.
    """

    exact: Array
    off: Array
    size: Array

    @classmethod
    def of(cls, weights: Array, weights_off: Array, rows: Array) -> Sums:
        """The three sums of ``rows`` by weights that are off by ``weights_off``."""
        sizes = np.abs(rows)
        return cls(
            exact=np.matmul(weights, rows),
            off=np.matmul(weights_off, sizes),
            size=np.matmul(np.abs(weights) + weights_off, sizes),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BackwardFlow:
    """What flows back through each query head; it is the same however heads share keys.

    sums: of the gradients of query, key and value. stored_off: what storing q and k scaled adds
    to the first two, zero where that is not done. largest_product: of dP.
    """

    sums: tuple[Sums, Sums, Sums]
    stored_off: tuple[Array | float, Array | float]
    largest_product: float
    roundings: _Roundings


def backward_flow(
    inputs: AttentionInputs,
    exact: Attention,
    output_error: Array,
    upstream: Array,
    profile: Profile,
    *,
    weights: Weights | None = None,
) -> BackwardFlow:
    """Of ``upstream`` ``[B, H, Sq, Dv]``; ``output_error`` bounds the forward output.

    weights: where they are known already, ``bounds.weights_of`` these inputs.

    ``step`` counts, for every stored intermediate (dP, dS, the slope, the scaled dS, and the
    per-head sums), one rounding of the storage format where the profile stores any. Derivation,
    with the same names: docs/bound.md.
    """
    r = _Roundings.of(inputs, exact, profile)
    value = inputs.value[:, inputs.kv_head_of]
    p, seen = exact.probabilities, exact.visible
    weights = weights or weights_of(inputs, exact, profile)
    p_off = np.where(seen, _probability_error(weights, exact, profile, r), 0.0)

    d_out, width = np.abs(upstream), value.shape[-1]
    products = np.matmul(upstream, value.swapaxes(-1, -2))
    sizes = np.matmul(d_out, np.abs(value).swapaxes(-1, -2))
    product_off = joined(gamma(width + 2, r.u_a), r.step) * sizes + r.eta + width * r.tau
    if profile.store is not None:  # dO and v pass through a format of less range
        sums = d_out.sum(-1)[..., :, None] + np.abs(value).sum(-1)[..., None, :]
        product_off = product_off + r.eta * sums
    delta, delta_off = _delta(exact, upstream, output_error, r)
    # The other way to delta is sum_j p_j dP_j, with the roundings of the products in it.
    p_relative = joined(r.step, r.lse, gamma(p.shape[-1] + 2, r.u_a))
    other = (p + p_off) * (p_relative * sizes + product_off * (1 + p_relative))
    delta_off = delta_off + np.where(seen, other, 0.0).sum(-1, keepdims=True)

    difference = np.abs(products - delta)
    difference_off = product_off + delta_off
    difference_off += r.step * (np.abs(products) + np.abs(delta) + difference_off)
    slope, slope_off = _slope(inputs, exact, profile, r)
    d_scores = p * (products - delta) * slope
    s_off = p_off * difference + (p + p_off) * difference_off
    s_off = s_off * (slope + slope_off) + p * difference * slope_off
    s_off = s_off * (1 + r.step) + r.step * np.abs(d_scores)
    s_off = np.where(seen, s_off + r.count * r.eta * _steepest(inputs) + 4 * r.tau, 0.0)
    scale, key = inputs.scale_value, inputs.key[:, inputs.kv_head_of]
    scaled, scaled_off = scale * d_scores, np.where(seen, abs(scale) * s_off + r.eta + r.tau, 0.0)
    stored_off: tuple[Array | float, Array | float] = (0.0, 0.0)
    if profile.query_roundings:  # q and k are stored after a product with sqrt(scale)
        size, root = np.abs(d_scores) + s_off, max(abs(scale), abs(scale) ** 0.5)
        stored_off = (
            root * r.eta * size.sum(-1)[..., None],
            root * r.eta * size.sum(-2)[..., None],
        )
    by_key, by_key_off = scaled.swapaxes(-1, -2), scaled_off.swapaxes(-1, -2)
    return BackwardFlow(
        sums=(
            Sums.of(scaled, scaled_off, key),
            Sums.of(by_key, by_key_off, inputs.query),
            Sums.of(p.swapaxes(-1, -2), p_off.swapaxes(-1, -2), upstream),
        ),
        stored_off=stored_off,
        largest_product=float(np.abs(products).max(initial=0.0)),
        roundings=r,
    )


def gradients(
    inputs: AttentionInputs,
    exact: Attention,
    output_error: Array,
    upstream: Array,
    profile: Profile,
    *,
    flow: BackwardFlow | None = None,
) -> Gradients:
    """Gradients for ``upstream`` ``[B, H, Sq, Dv]``; ``output_error`` bounds the forward output.

    flow: where it is known already, :func:`backward_flow` of these four.
    """
    flow = flow or backward_flow(inputs, exact, output_error, upstream, profile)
    r, (query, key, value) = flow.roundings, flow.sums
    kv_heads, head_of = inputs.key.shape[1], inputs.kv_head_of
    group = int(np.bincount(head_of).max())
    q_len, kv_len = exact.probabilities.shape[-2:]
    query_off = _error_of(query, kv_len + 2, r) + flow.stored_off[0]
    key_off = _error_of(key, q_len * group + 2, r) + flow.stored_off[1]
    value_off = _error_of(value, q_len * group + 2, r)
    results = [query.exact, *(by_kv_head(x.exact, head_of, kv_heads) for x in (key, value))]
    errors = [query_off, *(by_kv_head(x, head_of, kv_heads) for x in (key_off, value_off))]
    if r.count and not isinstance(inputs.head_order, str):
        # A gather of heads sums its gradients one by one, in the storage format.
        for i, per_head in ((1, key), (2, value)):
            size = by_kv_head(np.abs(per_head.exact), head_of, kv_heads) + errors[i]
            errors[i] = errors[i] + compound(group, r.u) * size
    u_out = format_of(inputs.dtype).unit_roundoff
    eta_out = max(format_of(inputs.dtype).half_subnormal, r.eta)
    allowed = [
        evaluated(error * (1 + u_out) + u_out * np.abs(result) + eta_out, profile)
        for result, error in zip(results, errors, strict=True)
    ]
    return Gradients(
        exact=(results[0], results[1], results[2]),
        allowed=(allowed[0], allowed[1], allowed[2]),
        largest_product=flow.largest_product,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Roundings:
    """What every stage of the backward pass needs: the names of docs/bound.md.

    ``count`` roundings to storage, at most, lie on any path; ``step`` is what they and six of
    the accumulator come to. ``lse``: relative error of exp(s - lse) by the roundings of lse.
    """

    u: float
    u_a: float
    eta: float
    tau: float
    count: int
    step: float
    lse: Array

    @classmethod
    def of(cls, inputs: AttentionInputs, exact: Attention, profile: Profile) -> _Roundings:
        u, u_a = profile.store_unit(inputs.dtype), profile.accumulate_unit(inputs.dtype)
        stores = bool(profile.score_roundings or profile.probability_roundings)
        count = profile.score_roundings + profile.probability_roundings + 2 if stores else 0
        eta = format_of(profile.store or inputs.dtype).half_subnormal if stores else 0.0
        lse = lse_roundings(inputs, exact, profile)
        if (
            inputs.sinks is not None
        ):  # it counts too: |lse| <= max(|lse of the keys|, |sink|) + log 2
            lse = lse + gamma(LSE_STEPS, u_a) * np.abs(inputs.sinks)[None, :, None]
        return cls(
            u=u,
            u_a=u_a,
            eta=eta,
            tau=profile.flush(inputs.dtype),
            count=count,
            step=float(joined(compound(count, u), gamma(6, u_a))),
            lse=np.expm1(np.minimum(lse, 50.0))[..., None],
        )


def _probability_error(
    weights: Weights, exact: Attention, profile: Profile, r: _Roundings
) -> Array:
    """How far each computed probability may be off: ``[B, H, Sq, Skv]``.

    Scores off by D leave p_j between p_j e^-D_j / sum p e^D and p_j e^D_j / sum p e^-D. Where
    they are stored, the backward pass sees those of the forward pass, and no p leaves [0, 1];
    where they are computed anew, exp(s - lse) may leave it.
    """
    p = exact.probabilities
    unsure = np.asarray(weights.scores_off > SCORE_ERROR_CAP).any(axis=-1, keepdims=True)
    off = np.minimum(weights.scores_off, SCORE_ERROR_CAP)
    larger = np.exp(off)
    grown = (weights.probabilities * larger).sum(-1, keepdims=True)
    shrunk = (weights.probabilities / larger).sum(-1, keepdims=True)
    grown, shrunk = (np.where(total > 0, total, 1.0) for total in (grown, shrunk))
    own = larger[..., : p.shape[-1]]  # without that of a sink
    p_off = np.maximum(p * (own / shrunk - 1), p * (1 - 1 / (own * grown)))
    if profile.score_roundings:
        p_off = np.where(unsure, 1.0, np.minimum(p_off, np.maximum(p, 1 - p)))
    else:
        p_off = np.where(unsure, ENORMOUS, p_off)
    rounded = joined(r.step, r.lse, gamma(p.shape[-1], r.u_a))
    return np.asarray(p_off * (1 + rounded) + p * rounded + r.count * r.eta + r.tau)


def _delta(
    exact: Attention, upstream: Array, output_error: Array, r: _Roundings
) -> tuple[Array, Array]:
    """delta = dO . o of each row, and what it is off by where o is the computed output."""
    d_out, size = np.abs(upstream), np.abs(exact.output) + output_error
    delta = (upstream * exact.output).sum(-1, keepdims=True)
    off = (d_out * output_error).sum(-1, keepdims=True)
    rounded = joined(gamma(upstream.shape[-1] + 2, r.u_a), r.step)
    off = off + rounded * (d_out * size).sum(-1, keepdims=True)
    return delta, off + r.eta + upstream.shape[-1] * r.tau


def _slope(
    inputs: AttentionInputs, exact: Attention, profile: Profile, r: _Roundings
) -> tuple[Array, Array]:
    """1 - tanh(s / c)^2, or 1 without a softcap, and what it is off by."""
    if inputs.softcap is None:
        return np.ones_like(exact.probabilities), np.zeros_like(exact.probabilities)
    tanh = exact.capped / inputs.softcap
    off = score_error(inputs, exact, profile) / inputs.softcap
    off = np.minimum(off + joined(gamma(8, r.u_a), r.step, profile.tanh_error), 1.0)
    return 1 - tanh**2, np.minimum(2 * off + off**2, 1.0)


def _steepest(inputs: AttentionInputs) -> float:
    """What a rounding of an underflowing gradient may be multiplied by on its way through."""
    return 1.0 if inputs.softcap is None else max(1.0, inputs.softcap, 1 / inputs.softcap)


def _error_of(sums: Sums, terms: int, r: _Roundings) -> Array:
    """What the sums are off by where ``terms`` are added up."""
    rounded = joined(gamma(terms, r.u_a), r.step)
    return np.asarray(sums.off + rounded * sums.size + terms * r.tau + r.eta)


def by_kv_head(per_head: Array, head_of: Array, kv_heads: int) -> Array:
    """Sum what each query head contributes to the key/value head that it reads."""
    counts = np.bincount(head_of, minlength=kv_heads)
    if (counts == counts[0]).all():
        order = np.argsort(head_of, kind="stable")
        ordered = per_head if (order[1:] > order[:-1]).all() else per_head[:, order]
        if counts[0] == 1:
            return ordered
        shape = (per_head.shape[0], kv_heads, counts[0], *per_head.shape[2:])
        return np.asarray(ordered.reshape(shape).sum(axis=2))
    sums = [per_head[:, head_of == head].sum(axis=1) for head in range(kv_heads)]
    return np.stack(sums, axis=1)
