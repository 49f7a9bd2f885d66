"""The part of the error bound that every softmax-weighted sum of values shares.

o_e = sum_j p_j v_je, where each score is off by at most D_j and the p, the v and the sum are
rounded as a :class:`Profile` says. Kinds of attention differ in D, and in what a value v_je is
made of: stored as it is, or rebuilt from a latent, with errors of its own.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import Final

import numpy as np

from equivalence.dtypes import Array, format_of
from equivalence.profiles import Profile

CHUNK_ELEMENTS: Final = 1 << 18
_kept = threading.local()
SCORE_ERROR_CAP: Final = 50.0
ENORMOUS: Final = 1e30


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """What is summed, with which weights, and how far off its pieces may be.

    probabilities, scores_off (D) and visible ``[B, H, Sq, S]``; value and magnitude
    ``[B, G, S, Dv]``, read by query head h at ``head_of[h]``; output ``[B, H, Sq, Dv]``;
    lowest and highest ``[B, Dv]``, the extreme values of any head and key.
    magnitude: |v|, or the sum of the absolute products that v is made of; None for |v|.
    value_error: what each value is off by, in units of its magnitude. value_floor: and beyond
    that, in absolute terms; broadcastable to ``[B, H, Sq, Dv]``. merging: where parts of the keys
    are weighed by exp(lse_i - lse), what that is off by: in units of sum_j p_j |v_j|, and of the
    largest |v_j|; each ``[B, H, Sq, 1]``.
    """

    probabilities: Array
    scores_off: Array
    visible: Array
    value: Array
    head_of: Array
    output: Array
    lowest: Array
    highest: Array
    magnitude: Array | None = None
    value_error: float = 0.0
    value_floor: Array | float = 0.0
    merging: tuple[Array, Array] | None = None


def gamma(n: float, unit: float) -> float:
    """n u / (1 - n u), the growth of n roundings (Higham 2002, lemma 3.1); ENORMOUS if n u >= 1.

    It is not infinite, because infinity times a sum of zeros is not a number.
    """
    return n * unit / (1 - n * unit) if n * unit < 1 else ENORMOUS


def gamma_array(n: Array, unit: float) -> Array:
    """:func:`gamma` of every n."""
    product = np.asarray(n * unit)
    if product.max(initial=0.0) < 1:
        return np.asarray(product / (1 - product))
    with np.errstate(divide="ignore"):
        return np.where(product < 1, product / (1 - np.minimum(product, 1.0)), ENORMOUS)


def compound(times: float, unit: float) -> float:
    """(1 + u)^n - 1: what n roundings to a storage format, one after another, come to."""
    return math.expm1(times * math.log1p(unit))


def joined(*errors: Array | float) -> Array:
    """(1 + a)(1 + b)... - 1: relative errors one after another, without cancellation."""
    total: Array | float = 0.0
    for error in errors:
        total = total + error + total * error
    return np.asarray(total)


def evaluated(bound: Array, profile: Profile) -> Array:
    """``bound`` and what the float64 reference may be off by itself.

    A float64 target is judged by a reference with the same errors, so both get the bound. For
    wider roundoffs the errors of the reference, and those of evaluating the bound, are at least
    2^-24 times smaller term by term; 2^-20 of the bound holds both.
    """
    return bound * (2.0 if profile.is_float64 else 1 + 2.0**-20)


def mixture_bound(mixture: Mixture, profile: Profile, dtype: str) -> tuple[Array, Array, Array]:
    """(allowed, furthest, natural) of ``equivalence.bounds.Allowance``, each ``[B, H, Sq, Dv]``."""
    probabilities, visible = mixture.probabilities, mixture.visible
    value, head_of, output = mixture.value, mixture.head_of, mixture.output
    u, u_a = profile.store_unit(dtype), profile.accumulate_unit(dtype)
    storage = format_of(dtype)
    inner_storage = format_of(profile.store or dtype)  # the output passes through it too
    u_out = max(storage.unit_roundoff, inner_storage.unit_roundoff)
    eta = max(storage.half_subnormal, inner_storage.half_subnormal)
    tau, n_p = profile.flush(dtype), profile.probability_roundings
    seen = visible.sum(axis=-1)[..., None].astype(np.float64)
    all_visible = bool((seen == visible.shape[-1]).all())
    off, capped_rows = mixture.scores_off, None
    if off.max(initial=0.0) > SCORE_ERROR_CAP:
        capped_rows = np.asarray(off > SCORE_ERROR_CAP).any(axis=-1, keepdims=True)
        off = np.minimum(off, SCORE_ERROR_CAP)
    more = np.expm1(off)
    grown = probabilities * more
    shrunk_total = (probabilities / (1 + more)).sum(axis=-1)[..., None]
    shrunk_total = np.where(shrunk_total > 0, shrunk_total, 1.0)
    # Weights that sum to one or less: their mean distance is below the largest by itself.
    heavy = bool((grown.sum(axis=-1)[..., None] > shrunk_total).any())
    needs_reach = heavy or capped_rows is not None
    largest_weights = probabilities + grown
    growth = gamma_array(seen + profile.growth_steps(), u_a)
    summed = joined(compound(n_p, u), growth, mixture.value_error)  # alpha of docs/bound.md
    divided = joined(growth, gamma(1, u_a))  # beta
    floor = mixture.value_floor
    if isinstance(floor, np.ndarray):
        floor = np.broadcast_to(floor, output.shape)

    allowed, furthest, natural = np.empty_like(output), np.empty_like(output), np.empty_like(output)
    step = max(1, CHUNK_ELEMENTS // max(1, visible.size))
    for start in range(0, output.shape[-1], step):
        part = slice(start, start + step)
        o = output[..., part]
        # Keys last, which numpy reduces several times faster: [B, G, e, S].
        by_key = np.ascontiguousarray(value[..., part].swapaxes(-1, -2))
        if mixture.magnitude is None:
            sizes = np.abs(by_key)
        else:
            sizes = np.ascontiguousarray(mixture.magnitude[..., part].swapaxes(-1, -2))
        # [B, H, Sq, e, S]: distance from the output to every value
        distance = _scratch((*o.shape, by_key.shape[-1]))
        np.subtract(by_key[:, head_of, None], o[..., None], out=distance)
        np.abs(distance, out=distance)
        score_part = np.einsum("bhqk,bhqek->bhqe", grown, distance) / shrunk_total
        reach = score_part
        if needs_reach:
            if not all_visible:
                distance = np.where(visible[..., None, :], distance, 0.0)
            reach = distance.max(axis=-1, initial=0.0)
        tallest, total = _visible_sizes(sizes, None if all_visible else visible, head_of)
        magnitude = sizes.swapaxes(-1, -2)[:, head_of]
        weighted = np.matmul(probabilities, magnitude)
        b_score = np.minimum(score_part, reach) if needs_reach else score_part
        w = np.minimum(np.matmul(largest_weights, magnitude) / shrunk_total, tallest)
        if capped_rows is not None:
            b_score, w = np.where(capped_rows, reach, b_score), np.where(capped_rows, tallest, w)
        least = floor[..., part] if isinstance(floor, np.ndarray) else floor
        lost = (tau + n_p * eta) * total + seen * tau + least
        inner = b_score + summed * w + lost * (1 + summed)
        if mixture.merging is not None:
            weighed, spread = mixture.merging
            inner = inner * (1 + weighed) + weighed * w + spread * tallest
        inner = inner * (1 + divided) + divided * np.abs(o)
        bound = inner * (1 + u_out) + u_out * np.abs(o) + eta
        allowed[..., part] = evaluated(bound, profile)
        natural[..., part] = u_out * weighted
        lowest, highest = mixture.lowest[:, None, None, part], mixture.highest[:, None, None, part]
        furthest[..., part] = np.maximum(np.abs(highest - o), np.abs(lowest - o))
    return allowed, furthest, natural


def _visible_sizes(sizes: Array, visible: Array | None, head_of: Array) -> tuple[Array, Array]:
    """The largest and the sum of the sizes that each query sees: broadcastable ``[B, H, Sq, e]``.

    sizes ``[B, G, e, S]``; visible ``[B, H, Sq, S]``, None where every query sees every key.
    """
    if visible is None:
        largest, total = sizes.max(axis=-1, initial=0.0), sizes.sum(axis=-1)
        return largest[:, head_of, None], total[:, head_of, None]
    alike = visible.strides[1] == 0  # the heads share one mask: ask for each key/value head once
    if alike:
        visible = visible[:, :1]
    else:
        sizes = sizes[:, head_of]
    counted = visible.astype(np.float64)
    shown = _scratch((*sizes.shape[:2], visible.shape[2], *sizes.shape[2:]))
    np.multiply(sizes[:, :, None], counted[..., None, :], out=shown)
    largest = shown.max(axis=-1, initial=0.0)
    total = np.matmul(counted, sizes.swapaxes(-1, -2))
    return (largest[:, head_of], total[:, head_of]) if alike else (largest, total)


def _scratch(shape: tuple[int, ...]) -> Array:
    """Space of this thread for one array at a time: who asks again has done with the last.

    Fresh pages cost more than what fills them.
    """
    count = math.prod(shape)
    space: Array | None = getattr(_kept, "space", None)
    if space is None or space.size < count:
        space = np.empty(max(count, CHUNK_ELEMENTS))
        if count <= CHUNK_ELEMENTS:
            _kept.space = space
    return space[:count].reshape(shape)
