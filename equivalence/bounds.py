"""How far from float64 attention a correct implementation may end up, element by element.

The bound is a running error analysis of softmax(scale q k^T) v under a :class:`Profile`; its
derivation is in docs/bound.md. Names follow it: ``u`` and ``u_a`` are the unit roundoffs of
storage and accumulator, ``eta`` half the smallest subnormal, ``tau`` where accumulators flush.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from equivalence.dtypes import Array, format_of
from equivalence.inputs import AttentionInputs
from equivalence.mixture import (
    CHUNK_ELEMENTS,
    SCORE_ERROR_CAP,
    Mixture,
    compound,
    evaluated,
    gamma,
    gamma_array,
    joined,
    mixture_bound,
)
from equivalence.profiles import Profile
from equivalence.reference import Attention

# exp(-746) is zero in float64 already, subnormals included, and in every narrower format.
UNDERFLOW: Final = -800.0
# Roundings of the accumulator after the products (docs/bound.md says which ones these are):
# of the scaled score, between it and its softcap, and of its distance from the largest score.
SCALE_STEPS: Final = 4
SOFTCAP_STEPS: Final = 11
SHIFT_STEPS: Final = 4
LSE_STEPS: Final = 4
# x / c, its tanh, and its product with c, where a profile stores scores at all.
SOFTCAP_ROUNDINGS: Final = 3


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

    def at(self, rows: Any) -> Allowance:
        """The same for a part of the output: ``rows`` indexes ``[B, H, Sq]``."""
        return Allowance(
            allowed=self.allowed[rows],
            furthest=self.furthest[rows],
            natural=self.natural[rows],
            in_domain=self.in_domain[rows],
        )


def score_error(inputs: AttentionInputs, exact: Attention, profile: Profile) -> Array:
    """D: how far each computed score, and its exponential, may be off; ``[B, H, Sq, Skv]``."""
    return _score_errors(inputs, exact, profile)[0]


def _score_errors(
    inputs: AttentionInputs, exact: Attention, profile: Profile
) -> tuple[Array, Array | None]:
    """D of every key, and D of the sink ``[B, H, Sq, 1]`` where there is one."""
    u, u_a = profile.store_unit(inputs.dtype), profile.accumulate_unit(inputs.dtype)
    n_s, visible = profile.score_roundings, exact.visible
    eta = format_of(profile.store or inputs.dtype).half_subnormal
    size = abs(inputs.scale_value) * np.abs(exact.dots)
    post = joined(compound(n_s, u), gamma(SCALE_STEPS, u_a))
    error = _product_error(inputs, profile) * (1 + post) + post * size
    if n_s:
        error = error + n_s * eta * max(1.0, abs(inputs.scale_value)) * (1 + post)
    if inputs.softcap is not None:
        stored = max(n_s, SOFTCAP_ROUNDINGS) if n_s else 0
        factor = joined(compound(stored, u), gamma(SOFTCAP_STEPS, u_a), profile.tanh_error)
        limited = inputs.softcap * np.tanh(size / inputs.softcap)
        # tanh is steepest towards zero, so that side of the score moves it most.
        error = limited - inputs.softcap * np.tanh((size - error) / inputs.softcap)
        error = error * (1 + factor) + factor * limited
        if n_s:
            error = error + stored * eta * max(1.0, inputs.softcap) * (1 + factor)
    if inputs.bias_size is not None:
        # A sum with each bias in turn; ALiBi is also a product, of a slope that may be scaled.
        sums = int(inputs.alibi_slopes is not None)
        sums += int(inputs.mask is not None and inputs.mask.dtype != bool)
        n_b, formed = profile.bias_roundings * sums, 2 * int(inputs.alibi_slopes is not None)
        capped, bias = np.abs(exact.capped), inputs.bias_size
        stored_part = compound(n_b, u)
        error = error * (1 + joined(stored_part, gamma(sums, u_a))) + n_b * eta
        error = error + joined(stored_part, gamma(sums, u_a)) * capped
        error = error + joined(stored_part, gamma(sums + 3 + formed, u_a)) * bias
    error = np.where(visible, error, 0.0)
    highest = (exact.scores + error).max(axis=-1, keepdims=True, initial=-np.inf)
    sink, sink_error = _sinks(inputs, exact), None
    shift, exponential = gamma(SHIFT_STEPS, u_a), -np.log1p(-profile.exp_ulps * u_a)
    if sink is not None:
        post = joined(compound(int(n_s > 0), u), shift)
        sink_error = post * np.abs(sink) + (eta if n_s else 0.0)
        highest = np.maximum(highest, sink + sink_error)
        sink_error = sink_error + shift * (highest - sink + sink_error) + exponential
    # Multiplied one by one: the distance itself may overflow where a key is at finfo.min.
    distance = shift * np.where(visible, highest, 0.0) + shift * error
    distance = distance - shift * np.where(visible, exact.scores, 0.0)
    error = error + distance + exponential
    return np.where(visible, error, 0.0), sink_error


def _product_error(inputs: AttentionInputs, profile: Profile) -> Array:
    """What scale * q.k is off by before its own roundings: ``[B, H, Sq, Skv]``."""
    u, u_a = profile.store_unit(inputs.dtype), profile.accumulate_unit(inputs.dtype)
    head_dim, scale, n_q = inputs.query.shape[-1], abs(inputs.scale_value), profile.query_roundings
    eta = format_of(profile.store or inputs.dtype).half_subnormal
    query, key = np.abs(inputs.query), np.abs(inputs.key)
    products = np.empty((*query.shape[:3], key.shape[2]))
    step = max(1, CHUNK_ELEMENTS * key.shape[1] // max(1, key.size))
    for start in range(0, query.shape[1], step):  # a copy for each head could be large
        heads = slice(start, start + step)
        read = key[:, inputs.kv_head_of[heads]].swapaxes(-1, -2)
        np.matmul(query[:, heads], read, out=products[:, heads])
    grown = joined(gamma(head_dim + 2, u_a), compound(n_q, u))
    error = scale * (grown * products + head_dim * profile.flush(inputs.dtype))
    if n_q:
        # Stored as sqrt(scale) q and sqrt(scale) k, or stored in a narrower format and scaled.
        sums = query.sum(-1)[..., :, None] + key.sum(-1)[:, inputs.kv_head_of][..., None, :]
        root = max(scale, float(np.sqrt(scale)))
        error = error + root * eta * (1 + u) * sums + head_dim * max(1.0, scale) * eta**2
    return np.asarray(error)


def _sinks(inputs: AttentionInputs, exact: Attention) -> Array | None:
    """The sink logits, one for each row: ``[B, H, Sq, 1]``."""
    if inputs.sinks is None:
        return None
    return np.broadcast_to(inputs.sinks[None, :, None, None], (*exact.lse.shape, 1))


def _top_score(inputs: AttentionInputs, exact: Attention) -> Array:
    top = exact.scores.max(axis=-1, keepdims=True, initial=-np.inf)
    if inputs.sinks is not None:
        top = np.maximum(top, inputs.sinks[None, :, None, None])
    return np.where(np.isfinite(top), top, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """The keys of each row, and last its sink, if any: all ``[B, H, Sq, Skv (+ 1)]``.

    ``scores_off`` is D, and zero at keys that have no weight whatever their error.
    """

    probabilities: Array
    scores_off: Array
    visible: Array


def weights_of(inputs: AttentionInputs, exact: Attention, profile: Profile) -> Weights:
    """What is weighed against each other in each row, with the error of each score."""
    scores_off, sink_off = _score_errors(inputs, exact, profile)
    probabilities, visible = exact.probabilities, exact.visible
    if sink_off is not None and exact.sink_probability is not None:
        probabilities = np.concatenate([probabilities, exact.sink_probability[..., None]], axis=-1)
        scores_off = np.concatenate([scores_off, sink_off], axis=-1)
        visible = np.concatenate([visible, np.ones(sink_off.shape, bool)], axis=-1)
    scores_off = _without_weightless(inputs, exact, scores_off)
    return Weights(probabilities=probabilities, scores_off=scores_off, visible=visible)


def allowance(
    inputs: AttentionInputs,
    exact: Attention,
    profile: Profile,
    *,
    weights: Weights | None = None,
) -> Allowance:
    """The bound of the docs for every output element of ``inputs`` under ``profile``.

    weights: where they are known already, :func:`weights_of` of these three.
    """
    weights, value = weights or weights_of(inputs, exact, profile), inputs.value
    if inputs.sinks is not None:  # its value is zero
        batch_size, num_kv_heads, _, width = value.shape
        value = np.concatenate([value, np.zeros((batch_size, num_kv_heads, 1, width))], axis=2)
    mixture = Mixture(
        probabilities=weights.probabilities,
        scores_off=weights.scores_off,
        visible=weights.visible,
        value=value,
        head_of=inputs.kv_head_of,
        output=exact.output,
        lowest=inputs.value.min(axis=(1, 2), initial=np.inf),
        highest=inputs.value.max(axis=(1, 2), initial=-np.inf),
        merging=merging_error(exact, profile, inputs.dtype, inputs.sinks),
    )
    allowed, furthest, natural = mixture_bound(mixture, profile, inputs.dtype)
    return Allowance(
        allowed=allowed,
        furthest=furthest,
        natural=natural,
        in_domain=in_domain(inputs, exact, profile),
    )


def _without_weightless(inputs: AttentionInputs, exact: Attention, scores_off: Array) -> Array:
    """D, and zero at keys whose computed weight is zero whatever their error.

    A computed weight is at most exp(s_j + D_j - (m - D_m)). A key hidden by finfo.min has an
    enormous D, since finfo.min is rounded, but stays so far below a visible one that the error
    cannot matter; without this, every mask of that kind would hide what it is meant to test.
    """
    top = _top_score(inputs, exact)
    depth = exact.scores - top
    if (sink := _sinks(inputs, exact)) is not None:
        depth = np.concatenate([depth, sink - top], axis=-1)
    if depth.min(initial=0.0, where=depth > -np.inf) >= UNDERFLOW:
        return scores_off  # it is zero already at keys that are hidden
    top_off = np.where(depth == 0, scores_off, 0.0).max(axis=-1, keepdims=True, initial=0.0)
    weightless = depth + scores_off + top_off < UNDERFLOW
    return np.where(weightless, 0.0, scores_off)


def in_domain(inputs: AttentionInputs, exact: Attention, profile: Profile) -> Array:
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
    # The sum of the values is divided last, or not at all: it may reach n max |v|.
    largest = np.abs(inputs.value).max(initial=0.0)
    accumulator = format_of(profile.accumulate or inputs.dtype)
    inside &= exact.seen * largest <= accumulator.max_finite
    if profile.store is not None:
        operands = (inputs.query, inputs.key, inputs.value)
        largest = max(float(np.abs(operand).max(initial=0.0)) for operand in operands)
        inside &= largest <= format_of(profile.store).max_finite
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
    tau, n_p = profile.flush(inputs.dtype), profile.probability_roundings
    tallest = np.abs(inputs.value).max(axis=2, initial=0.0)[:, inputs.kv_head_of][:, :, None]
    count = exact.seen[..., None].astype(np.float64) if seen is None else np.asarray(float(seen))
    growth = gamma_array(count + profile.growth_steps(), u_a)
    off = joined(compound(n_p, u), growth, growth, gamma(1, u_a))
    off = joined(off, *(merging_error(exact, profile, inputs.dtype, inputs.sinks) or ()))
    lost = (tau + n_p * eta) * count * tallest + count * tau
    bound = (off * tallest + lost * (1 + off)) * (1 + u_out) + u_out * tallest + eta
    return evaluated(bound, profile)


def lse_allowance(inputs: AttentionInputs, exact: Attention, profile: Profile) -> Array:
    """How far a natural log-sum-exp may be off; ``[B, H, Sq]``, infinite where it is not defined.

    It is returned in the format of the accumulators. Moving each score by at most D_j moves the
    sum between sum_j p_j e^-D_j and sum_j p_j e^D_j of itself; then come the roundings of the
    sum, of its logarithm, of the maximum that is added and of a change of base.
    """
    plain = inputs.but(sinks=None)
    alone = replace(exact, probabilities=_without_sink(exact), sink_probability=None)
    weights = weights_of(plain, alone, profile)
    off = np.minimum(weights.scores_off, SCORE_ERROR_CAP)
    high = np.log(np.maximum((weights.probabilities * np.exp(off)).sum(-1), 1.0))
    low = -np.log(np.clip((weights.probabilities * np.exp(-off)).sum(-1), 1e-300, 1.0))
    worst = weights.scores_off.max(axis=-1, initial=0.0)
    score_part = np.where(worst > SCORE_ERROR_CAP, worst, np.maximum(high, low))
    allowed = evaluated(score_part + lse_roundings(inputs, exact, profile), profile)
    return np.where(exact.seen > 0, allowed, np.inf)


def lse_roundings(inputs: AttentionInputs, exact: Attention, profile: Profile) -> Array:
    """What a log-sum-exp of exact scores may be off by: ``[B, H, Sq]``."""
    u_a = profile.accumulate_unit(inputs.dtype)
    growth = gamma_array(exact.seen + profile.growth_steps(), u_a)
    lse = np.where(np.isfinite(exact.lse), exact.lse, 0.0)
    size = np.abs(lse) + np.log(np.maximum(exact.seen, 1)) + 2.0
    return np.asarray(growth + gamma(LSE_STEPS, u_a) * (size + growth))


def merging_error(
    exact: Attention, profile: Profile, dtype: str, sinks: Array | None = None
) -> tuple[Array, Array] | None:
    """What weighing parts of the keys by exp(lse_i - lse) is off by; each ``[B, H, Sq, 1]``.

    None where the profile does no such thing. In units of sum_j p_j |v_j|: the roundings of lse_i,
    as far as |lse_i| <= |lse|, of lse and of the exponential. In units of the largest |v_j|: what
    |lse_i| is beyond that, and the difference, both at most -log p_j for each key j of the part;
    and sum_j p_j (-log p_j) <= log n.
    """
    if not profile.merges:
        return None
    u_a, seen = profile.accumulate_unit(dtype), np.maximum(exact.seen, 1)
    growth = gamma_array(exact.seen + profile.growth_steps(), u_a)
    size = np.abs(np.where(np.isfinite(exact.lse), exact.lse, 0.0))
    if sinks is not None:
        size = np.maximum(size, np.abs(sinks)[None, :, None])
        seen = seen + 1
    rounded = growth + gamma(LSE_STEPS, u_a) * (size + np.log(seen) + 2.0 + growth)
    weighed = np.expm1(np.minimum(2 * rounded + profile.exp_ulps * u_a, SCORE_ERROR_CAP))
    spread = gamma(LSE_STEPS + 1, u_a) * np.log(seen) * (1 + weighed)
    return weighed[..., None], spread[..., None]


def _without_sink(exact: Attention) -> Array:
    """The probabilities of the keys among themselves."""
    lse = np.where(np.isfinite(exact.lse), exact.lse, 0.0)[..., None]
    return np.where(exact.visible, np.exp(exact.scores - lse), 0.0)
