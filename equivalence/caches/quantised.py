"""The error bound of a cache that keeps 8-bit numbers; derived in docs/bounds/quantised.md."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from equivalence.bounds import Allowance, allowance, merging_error, score_error
from equivalence.dtypes import Array
from equivalence.mixture import Mixture, mixture_bound
from equivalence.piecewise import Piece
from equivalence.profiles import Profile

LEVELS: Final = 127


def stored_error(tallest: Array, unit_roundoff: float) -> Array:
    """How far a number may be from its 8-bit image, the largest of its row and head being known.

    Half a step of ``tallest / 127``, and three roundings of numbers up to ``tallest``: of the
    quotient before it is rounded to a whole number, of the step, and of their product.
    """
    return tallest * (0.5 / LEVELS + 3 * unit_roundoff)


def quantised_allowance(piece: Piece, profile: Profile) -> Allowance:
    """The bound of attention, widened by what 8 bits lose of keys and values."""
    inputs, exact = piece.inputs, piece.exact
    plain = allowance(inputs, exact, profile)
    u = profile.store_unit(inputs.dtype)
    key_off = stored_error(piece.facts["key"], u)[:, :, None, None]
    value_off = stored_error(piece.facts["value"], u)[:, :, None, None]
    largest_key = np.where(inputs.key < 0, -1.0, 1.0) * (np.abs(inputs.key) + key_off)
    scores_off = score_error(inputs.but(key=largest_key), exact, profile)
    sums = np.abs(inputs.query).sum(axis=-1)[..., None]
    moved = abs(inputs.scale_value) * sums * key_off[:, inputs.kv_head_of]
    scores_off = np.where(exact.visible, scores_off + moved * (1 + 4 * u), 0.0)
    floor = value_off[:, inputs.kv_head_of] * (1 + 2.0**-6)
    mixture = Mixture(
        probabilities=exact.probabilities,
        scores_off=scores_off,
        visible=exact.visible,
        value=inputs.value,
        head_of=inputs.kv_head_of,
        output=exact.output,
        lowest=inputs.value.min(axis=(1, 2), initial=np.inf),
        highest=inputs.value.max(axis=(1, 2), initial=-np.inf),
        magnitude=np.abs(inputs.value) + value_off,
        value_floor=floor,
        merging=merging_error(exact, profile, inputs.dtype),
    )
    allowed, furthest, natural = mixture_bound(mixture, profile, inputs.dtype)
    return replace(plain, allowed=allowed, furthest=furthest, natural=natural)
