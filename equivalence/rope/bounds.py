"""How far from float64 a correct rotary embedding may end up, element by element.

The derivation is in docs/bounds/rotary.md, whose names are used here: ``u`` is the unit roundoff
of storage, ``u_a`` of products and sums, ``u_t`` of angles and tables, ``eta`` half the smallest
subnormal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from equivalence.bounds import Allowance
from equivalence.dtypes import Array, format_of
from equivalence.profiles import Profile
from equivalence.rope.inputs import RotaryInputs
from equivalence.rope.reference import BETA_FAST, BETA_SLOW, Rotation, yarn_ramp
from equivalence.rope.scaling import RopeScaling

LIBRARY_ULPS: Final = 4.0  # sine and cosine: relative, in units of u_t
POWER: Final = 3.0  # theta ** x and its reciprocal
EXPONENT: Final = 4.0  # each of them multiplies x log(theta)


def frequency_roundings(
    rotary_dim: int, theta: float, scaling: RopeScaling | None, length: int, unit: float
) -> Array:
    """The relative error of each frequency, in units of u_t: ``[rotary_dim / 2]``.

    The first frequency is 1 before scaling, whatever the arithmetic: theta^0 is exact.
    """
    scaling = scaling or RopeScaling()
    share = 2.0 * np.arange(rotary_dim // 2) / rotary_dim
    plain: Array = np.zeros(len(share))
    plain = np.where(share > 0, POWER + EXPONENT * share * math.log(theta), 0.0)
    factor, original = scaling.factor, scaling.original_max_position_embeddings
    match scaling.rope_type:
        case "linear":
            return plain + 2.0
        case "longrope":
            return plain + 3.0
        case "dynamic":
            ratio = factor * max(length, original) / original
            stretch = ratio - (factor - 1.0)
            power = rotary_dim / (rotary_dim - 2.0)
            base = power * ((2.0 * ratio + factor) / stretch + 1.0 + math.log(stretch)) + 4.0
            grown = math.log(theta) + power * math.log(stretch)
            return np.where(share > 0, POWER + EXPONENT * share * grown + share * base, 0.0)
        case "llama3":
            turns = original * theta**-share / math.tau
            width = scaling.high_freq_factor - scaling.low_freq_factor
            blur = turns * (plain + 3.0) / width
            at = (turns - scaling.low_freq_factor) / width
            return plain + _mixed(at, blur + 3.0, factor, unit)
        case "yarn":
            low, high = yarn_edges(rotary_dim, theta, scaling)
            index = np.arange(rotary_dim // 2)
            off = 4.0 + (2.0 * index + 7.0 * (abs(low) + abs(high))) / (high - low)
            keep = 1.0 - yarn_ramp(rotary_dim, theta, scaling)
            return plain + _mixed(keep, off, factor, unit)
    return plain


def _mixed(keep: Array, off: Array, factor: float, unit: float) -> Array:
    """Roundings of ``f / factor (1 - keep) + f keep``, where keep may be off by ``off`` units."""
    sure = (keep + off * unit <= 0) | (keep - off * unit >= 1)
    kept = np.clip(keep, 0.0, 1.0)
    mixture = (1.0 - kept) / factor + kept
    return 5.0 + np.where(sure, 0.0, off * (1.0 - 1.0 / factor) / mixture)


def yarn_edges(rotary_dim: int, theta: float, scaling: RopeScaling) -> tuple[float, float]:
    """Between which pairs YaRN's ramp climbs."""
    original = scaling.original_max_position_embeddings
    edges = [
        rotary_dim * math.log(original / (times * math.tau)) / (2 * math.log(theta))
        for times in (scaling.beta_fast or BETA_FAST, scaling.beta_slow or BETA_SLOW)
    ]
    low, high = max(edges[0], 0.0), min(edges[1], rotary_dim - 1.0)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    return (low, high) if high > low else (low, low + 0.001)


def angle_error(inputs: RotaryInputs, exact: Rotation, tables: str) -> Array:
    """How far each angle may be off, in radians: like ``exact.angle``."""
    unit = format_of(tables).unit_roundoff
    roundings = frequency_roundings(
        inputs.turning, inputs.theta, inputs.scaling, inputs.length, unit
    )
    last = max(0, len(roundings) - 1)  # a suspected mistake may turn more pairs
    by_channel = roundings[np.minimum(exact.pair, last)]
    product = 1.0 + (unit > 2.0**-24)  # a position beyond 256 is rounded in bfloat16
    return np.abs(exact.angle) * _growth(by_channel + product, unit)


def _growth(roundings: Array, unit: float) -> Array:
    product = roundings * unit
    with np.errstate(divide="ignore"):
        return np.where(product < 1, product / (1.0 - np.minimum(product, 1.0)), 1e30)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Roundings:
    """The relative and absolute roundings of one profile, as the derivation names them.

    u, eta: storage. u_a: sums. table: relative error of cos and sin, the angle aside; table_eta
    its floor. product: of x cos, and of x sin. floor: what underflow adds to them and their sum.
    """

    u: float
    eta: float
    u_a: float
    table: float
    table_eta: float
    product: float
    floor: float


def _roundings(dtype: str, profile: Profile, tables: str, factor: float) -> _Roundings:
    table_format, scaled = format_of(tables), factor != 1.0
    formats = (format_of(profile.store or dtype), format_of(dtype))
    u = max(f.unit_roundoff for f in formats)
    eta = max(f.half_subnormal for f in formats)
    u_a = profile.accumulate_unit(dtype)
    kept, kept_eta = u_a, format_of(profile.accumulate or dtype).half_subnormal
    if profile.score_roundings > 0:  # tables and products are kept in the dtype
        kept, kept_eta = u, eta
    library = (LIBRARY_ULPS + 2.0 * scaled) * table_format.unit_roundoff
    return _Roundings(
        u=u,
        eta=eta,
        u_a=u_a,
        table=(1 + library) * (1 + kept) - 1,
        table_eta=kept_eta + table_format.half_subnormal,
        # The factor may be applied to what is stored, and then multiplies what underflow cost.
        product=kept * (1 + scaled),
        floor=(2 + scaled) * kept_eta * max(1.0, factor),
    )


def allowance(
    inputs: RotaryInputs, exact: Rotation, profile: Profile, tables: str | None
) -> Allowance:
    """The bound of the docs for every output element; 0 for a channel that is passed through."""
    tables = tables or "float32"
    r = _roundings(inputs.dtype, profile, tables, exact.factor)
    off = angle_error(inputs, exact, tables)
    swing, fall = np.sin(np.minimum(off, math.pi / 2)), 1.0 - np.cos(np.minimum(off, math.pi))
    cosine, sine = np.abs(exact.cosine), np.abs(exact.sine)
    off_cosine, off_sine = swing * sine + fall * cosine, swing * cosine + fall * sine
    off_cosine = off_cosine + r.table * (cosine + off_cosine) + r.table_eta
    off_sine = off_sine + r.table * (sine + off_sine) + r.table_eta

    x, other = np.abs(inputs.x), np.abs(inputs.x[..., exact.partner])
    inner = x * off_cosine + other * off_sine
    inner = inner + r.product * (exact.size + inner) + r.floor
    size = np.abs(exact.output)
    bound = inner * (1 + r.u_a) * (1 + r.u) + (r.u + r.u_a) * size + r.eta
    if profile.is_float64 and tables == "float64":
        bound = 2 * bound  # the reference errs too
    largest = (exact.size + inner).max(axis=-1, initial=0.0)
    return Allowance(
        allowed=np.where(exact.moves, bound, 0.0),
        furthest=np.where(exact.moves, size + exact.factor * np.hypot(x, other), 0.0),
        natural=r.u * np.where(exact.moves, exact.size, 0.0),
        in_domain=largest <= format_of(inputs.dtype).max_finite,
    )


def norm_allowance(
    inputs: RotaryInputs, exact: Rotation, profile: Profile, tables: str | None
) -> Allowance:
    """How far the length of each pair ``[B, H, S, rotary_dim / 2]`` may change.

    Whatever the angle, |x cos| + |x' sin| is at most the length of the pair (Cauchy), so an error
    of the angle does not count here.
    """
    tables = tables or "float32"
    r = _roundings(inputs.dtype, profile, tables, exact.factor)
    first = np.flatnonzero(exact.sign < 0)
    x, other = np.abs(inputs.x[..., first]), np.abs(inputs.x[..., exact.partner[first]])
    length = exact.factor * np.hypot(x, other)
    share = (1 + r.table) * (1 + r.product) * (1 + r.u_a) * (1 + r.u) - 1
    tiny = 2 * (x + other) * r.table_eta + 2 * r.floor + r.eta
    off = math.sqrt(2.0) * (share * length + tiny) + 4 * 2.0**-53 * length
    return Allowance(
        allowed=2 * off if profile.is_float64 and tables == "float64" else off,
        furthest=length,
        natural=r.u * length,
        in_domain=length.max(axis=-1, initial=0.0) <= format_of(inputs.dtype).max_finite / 2,
    )
