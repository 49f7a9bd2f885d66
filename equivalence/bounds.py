"""How far from float64 attention a correct implementation may end up, element by element.

The bound is a running error analysis of softmax(scale q k^T) v under a :class:`Profile`; its
derivation is in docs/bound.md. Names follow it: ``u`` and ``u_a`` are the unit roundoffs of
storage and accumulator, ``eta`` half the smallest subnormal, ``tau`` where accumulators flush.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from equivalence.dtypes import Array, format_of
from equivalence.inputs import AttentionInputs
from equivalence.mixture import TAU, TAU_FLOAT64, Mixture, gamma, gamma_array, mixture_bound
from equivalence.profiles import Profile
from equivalence.reference import Attention

# exp(-746) is zero in float64 already, subnormals included, and in every narrower format.
UNDERFLOW: Final = -800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What a comparison may accept.

    allowed ``[B, H, Sq, Dv]``: the bound B. furthest: the largest distance from the output to a
    value at any key of any key/value head, seen or not; where B reaches it, nothing was tested.
    natural ``[B, H, Sq, Dv]``: u sum_j p_j |v_j|, the unit of the error reported to a search.
    in_domain ``[B, H, Sq]``: rows that the profile promises to compute at all.
    """

    allowed: Array
    furthest: Array
    natural: Array
    in_domain: Array


def score_error(inputs: AttentionInputs, exact: Attention, profile: Profile) -> Array:
    """D: how far each computed score, and its exponential, may be off; ``[B, H, Sq, Skv]``."""
    u, u_a = profile.store_unit(inputs.dtype), profile.accumulate_unit(inputs.dtype)
    head_dim, scale = inputs.query.shape[-1], abs(inputs.scale_value)
    key = np.abs(inputs.key[:, inputs.kv_head_of])
    products = np.matmul(np.abs(inputs.query), key.swapaxes(-1, -2))
    scaled = scale * np.abs(exact.dots)
    error = scale * (gamma(head_dim + 2, u_a) + profile.query_roundings * u) * products
    error = error + (profile.score_roundings * u + 3 * u_a) * scaled
    eta = format_of(profile.store or inputs.dtype).half_subnormal
    if profile.score_roundings:
        error = error + 2 * eta
    if profile.query_roundings:
        sums = np.abs(inputs.query).sum(-1)[..., :, None] + key.sum(-1)[..., None, :]
        error = error + np.sqrt(scale) * eta * sums
    if inputs.softcap is not None:
        factor = profile.score_roundings * u + 8 * u_a + profile.tanh_error
        error = error + factor * inputs.softcap * np.tanh(scaled / inputs.softcap)
    visible = exact.visible
    scores = np.where(visible, exact.scores, 0.0)
    if inputs.bias_size is not None:
        bias = inputs.bias_size
        error = error + 2 * u_a * bias
        error = error + profile.bias_roundings * u * (np.abs(exact.capped) + bias)
    top = _top_score(inputs, exact)
    error = error + 2 * u_a * np.maximum(top - scores, 0.0) + profile.exp_ulps * u_a
    return np.where(visible, error, 0.0)


def _top_score(inputs: AttentionInputs, exact: Attention) -> Array:
    top = exact.scores.max(axis=-1, keepdims=True, initial=-np.inf)
    if inputs.sinks is not None:
        top = np.maximum(top, inputs.sinks[None, :, None, None])
    return np.where(np.isfinite(top), top, 0.0)


def allowance(inputs: AttentionInputs, exact: Attention, profile: Profile) -> Allowance:
    """The bound of the docs for every output element of ``inputs`` under ``profile``."""
    probabilities, scores_off = exact.probabilities, score_error(inputs, exact, profile)
    value, head_of = inputs.value, inputs.kv_head_of
    visible = exact.visible
    if inputs.sinks is not None and exact.sink_probability is not None:
        probabilities, scores_off, visible = _with_sink(inputs, exact, profile, scores_off)
        batch_size, num_kv_heads, _, width = value.shape
        value = np.concatenate([value, np.zeros((batch_size, num_kv_heads, 1, width))], axis=2)

    scores_off = np.where(_weightless(inputs, exact, scores_off), 0.0, scores_off)
    mixture = Mixture(
        probabilities=probabilities,
        scores_off=scores_off,
        visible=visible,
        value=value,
        head_of=head_of,
        output=exact.output,
        lowest=inputs.value.min(axis=(1, 2), initial=np.inf),
        highest=inputs.value.max(axis=(1, 2), initial=-np.inf),
    )
    allowed, furthest, natural = mixture_bound(mixture, profile, inputs.dtype)
    return Allowance(
        allowed=allowed,
        furthest=furthest,
        natural=natural,
        in_domain=_in_domain(inputs, exact, profile),
    )


def _weightless(inputs: AttentionInputs, exact: Attention, scores_off: Array) -> Array:
    """Keys whose computed weight is zero whatever their error: bool, of the shape of D.

    A computed weight is at most exp(s_j + D_j - (m - D_m)). A key hidden by finfo.min has an
    enormous D, since finfo.min is rounded, but stays so far below a visible one that the error
    cannot matter; without this, every mask of that kind would hide what it is meant to test.
    """
    top = _top_score(inputs, exact)
    depth = exact.scores - top
    if inputs.sinks is not None:
        sink = np.broadcast_to(inputs.sinks[None, :, None, None], (*exact.lse.shape, 1))
        depth = np.concatenate([depth, sink - top], axis=-1)
    top_off = np.where(depth == 0, scores_off, 0.0).max(axis=-1, keepdims=True, initial=0.0)
    return np.asarray(depth + scores_off + top_off < UNDERFLOW)


def _with_sink(
    inputs: AttentionInputs, exact: Attention, profile: Profile, scores_off: Array
) -> tuple[Array, Array, Array]:
    """The sink as one more visible key, whose value is zero and whose score is exact."""
    assert inputs.sinks is not None
    assert exact.sink_probability is not None
    u, u_a = profile.store_unit(inputs.dtype), profile.accumulate_unit(inputs.dtype)
    sink = np.broadcast_to(inputs.sinks[None, :, None, None], (*exact.lse.shape, 1))
    top = _top_score(inputs, exact)
    off = (2 * u_a + u * (profile.score_roundings > 0)) * np.abs(sink)
    off = off + 2 * u_a * (top - sink) + profile.exp_ulps * u_a
    return (
        np.concatenate([exact.probabilities, exact.sink_probability[..., None]], axis=-1),
        np.concatenate([scores_off, off], axis=-1),
        np.concatenate([exact.visible, np.ones_like(sink, bool)], axis=-1),
    )


def _in_domain(inputs: AttentionInputs, exact: Attention, profile: Profile) -> Array:
    """Rows whose intermediate values the profile can store: bool ``[B, H, Sq]``."""
    inside = np.ones(exact.output.shape[:3], bool)
    if profile.scores_overflow:
        limit = format_of(profile.store or inputs.dtype).max_finite / 2
        inside &= np.abs(exact.dots).max(axis=-1, initial=0.0) <= limit
        if inputs.bias_size is not None:
            # finfo.min plus a negative score overflows to -inf in float16. It does no harm where
            # another key outweighs it, but in a row that has nothing better it hides the key.
            stored = np.abs(exact.capped) + inputs.bias_size
            lost = (exact.probabilities > 0) & (stored > 2 * limit)
            inside &= ~lost.any(axis=-1)
    if profile.accumulate is None:
        largest = np.abs(inputs.value).max(initial=0.0)
        inside &= exact.seen * largest <= format_of(inputs.dtype).max_finite
    return inside


def combination_error(
    inputs: AttentionInputs, exact: Attention, profile: Profile, *, seen: int | None = None
) -> Array:
    """How far a rounded convex combination of the visible values may leave their hull.

    The bound with every score error zero and sum_j p_j |v_j| replaced by the largest |v_j|, so
    that it holds whatever the weights are, as long as they sum to one; ``[B, H, Sq, Dv]``.
    """
    u, u_a = profile.store_unit(inputs.dtype), profile.accumulate_unit(inputs.dtype)
    storage = format_of(inputs.dtype)
    inner = format_of(profile.store or inputs.dtype)
    u_out = max(storage.unit_roundoff, inner.unit_roundoff)
    eta = max(storage.half_subnormal, inner.half_subnormal)
    tau = TAU_FLOAT64 if inputs.dtype == "float64" else TAU
    count = exact.seen[..., None].astype(np.float64) if seen is None else np.asarray(float(seen))
    growth = gamma_array(count + 6 * profile.blocks + 5, u_a)
    tallest = np.abs(inputs.value).max(axis=2, initial=0.0)[:, inputs.kv_head_of][:, :, None]
    once = (profile.probability_roundings * u + 2 * growth + u_a) * tallest
    once = once + (tau + eta) * count * tallest + count * tau
    bound = once * (1 + u_out) + u_out * tallest + eta
    return np.asarray(2 * bound if profile.name == "f64" else bound)


def lse_allowance(inputs: AttentionInputs, exact: Attention, profile: Profile) -> Array:
    """How far a natural log-sum-exp may be off; ``[B, H, Sq]``, infinite where it is not defined.

    log sum_j exp(s_j) moves by at most max_j D_j when each s_j moves by D_j; the sum adds
    gamma_n, and its logarithm, the added maximum and a change of base four roundings of the
    result and of the logarithm.
    """
    u_a = max(profile.accumulate_unit(inputs.dtype), format_of("float64").unit_roundoff)
    worst = score_error(inputs, exact, profile).max(axis=-1, initial=0.0)
    growth = gamma_array(exact.seen.astype(np.float64) + 6 * profile.blocks + 4, u_a)
    with np.errstate(invalid="ignore"):
        size = np.abs(exact.lse) + np.log(np.maximum(exact.seen, 1)) + 2.0
        off = worst + growth + 4 * u_a * size
    off = np.where(np.isfinite(off), off, np.inf)
    return np.asarray(2 * off if profile.name == "f64" else off)
