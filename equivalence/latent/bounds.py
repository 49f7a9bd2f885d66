"""How far from float64 latent attention a correct implementation may end up.

The bound of ``equivalence.bounds`` with two more contractions: through the key up-projection in
the scores, through the value up-projection in the sum, in either order (absorbed or expanded).
The derivation, term by term, is in docs/bounds/mla.md, whose names are used here.
"""

from __future__ import annotations

import numpy as np

from equivalence.bounds import Allowance
from equivalence.dtypes import Array, format_of
from equivalence.latent.inputs import LatentInputs
from equivalence.latent.reference import per_head
from equivalence.mixture import TAU, TAU_FLOAT64, Mixture, gamma, mixture_bound
from equivalence.profiles import Profile
from equivalence.reference import Attention


def score_error(inputs: LatentInputs, exact: Attention, profile: Profile) -> Array:
    """D: how far each computed score, and its exponential, may be off; ``[B, H, Sq, S]``."""
    u, u_a = profile.store_unit(inputs.dtype), profile.accumulate_unit(inputs.dtype)
    n_s, n_q, n_w = (
        profile.score_roundings,
        profile.query_roundings,
        profile.projection_roundings,
    )
    scale, eta = abs(inputs.scale_value), format_of(profile.store or inputs.dtype).half_subnormal
    query, rotary = np.abs(inputs.query_content), np.abs(inputs.query_rotary)
    latent, key_rotary = np.abs(inputs.latent), np.abs(inputs.key_rotary)
    keys = per_head(latent, np.abs(inputs.w_uk))
    content = np.matmul(query, keys.swapaxes(-1, -2))
    products = content + np.matmul(rotary, key_rotary[:, None].swapaxes(-1, -2))
    widths = query.shape[-1] + latent.shape[-1] + rotary.shape[-1]
    error = (gamma(widths + 6, u_a) + n_q * u) * products + n_w * u * content
    error = scale * (error + (n_s * u + 3 * u_a) * np.abs(exact.dots))
    if n_s:
        error = error + 2 * eta
    if n_w or n_q:
        query_sum = query.sum(-1)[..., :, None]
        latent_sum = latent.sum(-1)[:, None, None, :]
        error = error + n_w * scale * eta * (query_sum + latent_sum)
        if n_q:
            absorbed = np.matmul(query, np.abs(inputs.w_uk)).sum(-1)[..., :, None]
            sums = query_sum + absorbed + rotary.sum(-1)[..., :, None] + latent_sum
            sums = sums + keys.sum(-1)[..., None, :] + key_rotary.sum(-1)[:, None, None, :]
            error = error + np.sqrt(scale) * eta * sums
    if profile.accumulate is None:  # every product of both contractions may underflow
        terms = latent.shape[-1] * query.sum(-1)[..., :, None] + widths
        terms = terms + query.shape[-1] * latent.sum(-1)[:, None, None, :]
        error = error + scale * eta * terms
    top = np.where(np.isfinite(exact.scores), exact.scores, -np.inf)
    top = top.max(axis=-1, keepdims=True, initial=-np.inf)
    depth = np.where(exact.visible, np.where(np.isfinite(top), top, 0.0) - exact.scores, 0.0)
    error = error + 2 * u_a * depth + profile.exp_ulps * u_a
    return np.where(exact.visible, error, 0.0)


def latent_allowance(inputs: LatentInputs, exact: Attention, profile: Profile) -> Allowance:
    """The bound for every output element of ``inputs`` under ``profile``."""
    u, u_a = profile.store_unit(inputs.dtype), profile.accumulate_unit(inputs.dtype)
    n_w = profile.projection_roundings
    eta = format_of(profile.store or inputs.dtype).half_subnormal
    tau = TAU_FLOAT64 if inputs.dtype == "float64" else TAU
    value = per_head(inputs.latent, inputs.w_uv)
    contraction = gamma(inputs.latent.shape[-1] + 4, u_a)
    weights_sum = np.abs(inputs.w_uv).sum(axis=-1)[None, :, None, :]
    floor = (n_w * eta + tau) * (weights_sum + 1.0)
    if profile.accumulate is None:
        floor = floor + eta * exact.seen[..., None] * (weights_sum + inputs.latent.shape[-1] + 1.0)
    mixture = Mixture(
        probabilities=exact.probabilities,
        scores_off=score_error(inputs, exact, profile),
        visible=exact.visible,
        value=value,
        head_of=np.arange(value.shape[1]),
        output=exact.output,
        lowest=value.min(axis=(1, 2), initial=np.inf),
        highest=value.max(axis=(1, 2), initial=-np.inf),
        magnitude=per_head(np.abs(inputs.latent), np.abs(inputs.w_uv)),
        value_error=n_w * u + contraction + n_w * u * contraction,
        value_floor=floor,
    )
    allowed, furthest, natural = mixture_bound(mixture, profile, inputs.dtype)
    return Allowance(
        allowed=allowed,
        furthest=furthest,
        natural=natural,
        in_domain=_in_domain(inputs, exact, profile),
    )


def _in_domain(inputs: LatentInputs, exact: Attention, profile: Profile) -> Array:
    """Rows whose intermediate values the profile can store: bool ``[B, H, Sq]``.

    Scores, absorbed queries, expanded keys and values stay below half the largest number of the
    storage format; where sums are accumulated in it, so do the sums of absolute products.
    """
    inside = np.ones(exact.output.shape[:3], bool)
    limit = format_of(profile.store or inputs.dtype).max_finite / 2
    if profile.scores_overflow:
        seen = np.where(exact.visible, np.abs(exact.dots), 0.0)
        inside &= seen.max(axis=-1, initial=0.0) <= limit
    if profile.projection_roundings:
        absorbed = np.abs(np.matmul(inputs.query_content, inputs.w_uk))
        inside &= absorbed.max(axis=-1, initial=0.0) <= limit
        for weights in (inputs.w_uk, inputs.w_uv):
            largest = np.abs(per_head(inputs.latent, weights)).max(axis=(2, 3), initial=0.0)
            inside &= largest[:, :, None] <= limit
    if profile.accumulate is None:
        largest = np.abs(inputs.latent).max(initial=0.0)
        inside &= exact.seen * largest <= limit
        for weights in (inputs.w_uk, inputs.w_uv):
            sums = per_head(np.abs(inputs.latent), np.abs(weights)).max(axis=(2, 3), initial=0.0)
            inside &= exact.seen * sums[:, :, None] <= limit
    return inside
