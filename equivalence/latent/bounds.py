"""How far from float64 latent attention a correct implementation may end up.

The bound of ``equivalence.bounds`` with two more contractions: through the key up-projection in
the scores, through the value up-projection in the sum, in either order (absorbed or expanded).
The derivation, term by term, is in docs/bounds/mla.md, whose names are used here.
"""

from __future__ import annotations

import numpy as np

from equivalence.bounds import SCALE_STEPS, SHIFT_STEPS, Allowance, merging_error
from equivalence.dtypes import Array, format_of
from equivalence.latent.inputs import OPERANDS, LatentInputs
from equivalence.latent.reference import per_head
from equivalence.mixture import Mixture, compound, gamma, joined, mixture_bound
from equivalence.profiles import Profile
from equivalence.reference import Attention


def score_error(inputs: LatentInputs, exact: Attention, profile: Profile) -> Array:
    """D: how far each computed score, and its exponential, may be off; ``[B, H, Sq, S]``."""
    u, u_a = profile.store_unit(inputs.dtype), profile.accumulate_unit(inputs.dtype)
    n_s, scale = profile.score_roundings, abs(inputs.scale_value)
    eta = format_of(profile.store or inputs.dtype).half_subnormal
    post = joined(compound(n_s, u), gamma(SCALE_STEPS, u_a))
    error = _product_error(inputs, profile) * (1 + post) + post * scale * np.abs(exact.dots)
    if n_s:
        error = error + n_s * eta * max(1.0, scale) * (1 + post)
    error = np.where(exact.visible, error, 0.0)
    highest = (exact.scores + error).max(axis=-1, keepdims=True, initial=-np.inf)
    scores = np.where(exact.visible, exact.scores, 0.0)
    depth = np.where(exact.visible, highest, 0.0) - scores + error
    exponential = -np.log1p(-profile.exp_ulps * u_a)
    return np.where(exact.visible, error + gamma(SHIFT_STEPS, u_a) * depth + exponential, 0.0)


def _product_error(inputs: LatentInputs, profile: Profile) -> Array:
    """What scale (q^C . W_UK c + q^R . k^R) is off by before its own roundings."""
    u, u_a = profile.store_unit(inputs.dtype), profile.accumulate_unit(inputs.dtype)
    n_q, n_w, scale = (
        profile.query_roundings,
        profile.projection_roundings,
        abs(inputs.scale_value),
    )
    eta, tau = format_of(profile.store or inputs.dtype).half_subnormal, profile.flush(inputs.dtype)
    query, rotary = np.abs(inputs.query_content), np.abs(inputs.query_rotary)
    latent, key_rotary = np.abs(inputs.latent), np.abs(inputs.key_rotary)
    head_dim, latent_dim, rope_dim = (x.shape[-1] for x in (query, latent, rotary))
    width = head_dim + latent_dim + rope_dim
    keys = per_head(latent, np.abs(inputs.w_uk))
    content = np.matmul(query, keys.swapaxes(-1, -2))
    turned = np.matmul(rotary, key_rotary[:, None].swapaxes(-1, -2))
    query_sum, latent_sum = query.sum(-1)[..., :, None], latent.sum(-1)[:, None, None, :]

    contracted = joined(gamma(width + 6, u_a), compound(n_q, u))
    made = joined(contracted, compound(n_w, u))
    # Absorbed, d products in front of each latent coordinate may be flushed; expanded, dc of them
    # in front of each content coordinate.
    flushed = head_dim * latent_sum + latent_dim * query_sum + width
    error = made * content + contracted * turned + tau * flushed
    error = scale * (error + n_w * eta * (query_sum + latent_sum) * (1 + made))
    if n_q:
        # Stored as sqrt(scale) q and sqrt(scale) k, absorbed or expanded.
        absorbed = np.matmul(query, np.abs(inputs.w_uk)).sum(-1)[..., :, None]
        sums = query_sum + absorbed + rotary.sum(-1)[..., :, None] + latent_sum
        sums = sums + keys.sum(-1)[..., None, :] + key_rotary.sum(-1)[:, None, None, :]
        root = max(scale, float(np.sqrt(scale)))
        error = error + root * eta * (1 + made) * sums + width * max(1.0, scale) * eta**2
    return np.asarray(error)


def latent_allowance(inputs: LatentInputs, exact: Attention, profile: Profile) -> Allowance:
    """The bound for every output element of ``inputs`` under ``profile``."""
    u, u_a = profile.store_unit(inputs.dtype), profile.accumulate_unit(inputs.dtype)
    n_w, latent_dim = profile.projection_roundings, inputs.latent.shape[-1]
    eta, tau = format_of(profile.store or inputs.dtype).half_subnormal, profile.flush(inputs.dtype)
    value = per_head(inputs.latent, inputs.w_uv)
    row_sums = np.abs(inputs.w_uv).sum(axis=-1)[None, :, None, :]
    value_error = float(joined(compound(n_w, u), gamma(latent_dim + 4, u_a)))
    # What the up-projection loses to underflow: after the sum (absorbed), or in each value.
    lost = n_w * eta * (row_sums + 1.0) * (1 + value_error)
    lost = lost + tau * (exact.seen[..., None] * row_sums + latent_dim + 1.0)
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
        value_error=value_error,
        value_floor=lost,
        merging=merging_error(exact, profile, inputs.dtype),
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
    # Sums over the tokens are divided last, or not at all.
    accumulator = format_of(profile.accumulate or inputs.dtype).max_finite
    inside &= exact.seen * np.abs(inputs.latent).max(initial=0.0) <= accumulator
    for weights in (inputs.w_uk, inputs.w_uv):
        sums = per_head(np.abs(inputs.latent), np.abs(weights)).max(axis=(2, 3), initial=0.0)
        inside &= exact.seen * sums[:, :, None] <= accumulator
    if profile.store is not None:
        largest = max(float(np.abs(getattr(inputs, name)).max(initial=0.0)) for name in OPERANDS)
        inside &= largest <= format_of(profile.store).max_finite
    return inside
