"""Rotary embeddings in float64, written to be checked by eye.

RoFormer (Su et al. 2021), eq. 15 and 34: pair i of the ``r = rotary_dim`` channels that move is
turned by the angle ``position * theta^(-2i/r)``,

    y_first  = x_first cos - x_second sin,      y_second = x_second cos + x_first sin.

The scaled frequencies are those of ``transformers.modeling_rope_utils`` (version 5):
linear (kaiokendev 2023), dynamic NTK (bloc97, emozilla 2023), YaRN (Peng et al. 2023, eq. 17 to
22), Llama 3.1 (Grattafiori et al. 2024), LongRoPE (Ding et al. 2024).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from equivalence.dtypes import Array
from equivalence.rope.inputs import RotaryInputs
from equivalence.rope.scaling import RopeScaling

BETA_FAST: Final = 32.0
BETA_SLOW: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """Channel by channel, what is computed: ``output = x cos + sign x[partner] sin``.

    cosine, sine ``[B or 1, 1, S, D]`` carry ``factor``; angle has their shape. partner, sign,
    moves ``[D]``: where moves is False, the channel is passed through. frequency, pair ``[D]``:
    radians per position (0 where nothing moves) and the number of the pair. size
    ``[B, H, S, D]``: |x cos| + |x[partner] sin|.
    """

    output: Array
    size: Array
    cosine: Array
    sine: Array
    angle: Array
    partner: Array
    sign: Array
    moves: Array
    frequency: Array
    pair: Array
    factor: float


def rotary(inputs: RotaryInputs) -> Rotation:
    """Evaluate ``inputs`` in float64."""
    omega = frequencies(inputs.turning, inputs.theta, inputs.scaling, inputs.length)
    first, second = pairs(inputs.turning, inputs.pairing)
    factor = factor_of(inputs.scaling, inputs.attention_factor)
    return turned(inputs.x, inputs.by_row, omega, first, second, factor)


def turned(
    x: Array, positions: Array, omega: Array, first: Array, second: Array, factor: float
) -> Rotation:
    """Turn channel ``first[i]`` against ``second[i]`` by ``positions * omega[i]``."""
    head_dim = x.shape[-1]
    partner, sign = np.arange(head_dim), np.zeros(head_dim)
    partner[first], partner[second] = second, first
    sign[first], sign[second] = -1.0, 1.0
    frequency, pair = np.zeros(head_dim), np.zeros(head_dim, int)
    frequency[first] = frequency[second] = omega
    pair[first] = pair[second] = np.arange(len(omega))
    return by_channel(x, positions, frequency, partner, sign, factor, pair)


def by_channel(
    x: Array,
    positions: Array,
    frequency: Array,
    partner: Array,
    sign: Array,
    factor: float,
    pair: Array,
) -> Rotation:
    """``x cos + sign x[partner] sin``; a channel whose sign is 0 is passed through."""
    moves = sign != 0
    angle = positions[:, None, :, None] * frequency
    cosine = np.where(moves, factor * np.cos(angle), 1.0)
    sine = np.where(moves, factor * np.sin(angle), 0.0)
    along, across = x * cosine, x[..., partner] * sine
    return Rotation(
        output=along + sign * across,
        size=np.abs(along) + np.abs(across),
        cosine=cosine,
        sine=sine,
        angle=angle,
        partner=partner,
        sign=sign,
        moves=moves,
        frequency=frequency,
        pair=pair,
        factor=factor,
    )


def pairs(rotary_dim: int, pairing: str) -> tuple[Array, Array]:
    """The first and the second channel of each pair."""
    index = np.arange(rotary_dim // 2)
    if pairing == "interleaved":  # RoFormer, GPT-J, DeepSeek
        return 2 * index, 2 * index + 1
    return index, index + rotary_dim // 2  # GPT-NeoX, Llama


def frequencies(rotary_dim: int, theta: float, scaling: RopeScaling | None, length: int) -> Array:
    """Radians per position of each pair ``[rotary_dim / 2]``, for a context of ``length``."""
    scaling = scaling or RopeScaling()
    share = 2.0 * np.arange(rotary_dim // 2) / rotary_dim
    plain = theta**-share
    factor, original = scaling.factor, scaling.original_max_position_embeddings
    match scaling.rope_type:
        case "linear":
            return np.asarray(plain / factor)
        case "dynamic":
            stretch = factor * max(length, original) / original - (factor - 1.0)
            base = theta * stretch ** (rotary_dim / (rotary_dim - 2.0))
            return np.asarray(base**-share)
        case "yarn":
            keep = 1.0 - yarn_ramp(rotary_dim, theta, scaling)
            return np.asarray(plain / factor * (1.0 - keep) + plain * keep)
        case "llama3":
            turns = original * plain / (2.0 * math.pi)  # within the original length
            low, high = scaling.low_freq_factor, scaling.high_freq_factor
            smooth = np.clip((turns - low) / (high - low), 0.0, 1.0)
            return np.asarray((1.0 - smooth) * plain / factor + smooth * plain)
        case "longrope":
            name = "long_factor" if length > original else "short_factor"
            return np.asarray(plain / np.asarray(scaling.factors(name, rotary_dim // 2)))
    return np.asarray(plain)


def yarn_ramp(rotary_dim: int, theta: float, scaling: RopeScaling) -> Array:
    """YaRN's ramp over the pairs: 0 keeps the frequency, 1 divides it by the factor."""
    low, high = yarn_range(rotary_dim, theta, scaling)
    return ramp(rotary_dim // 2, max(low, 0.0), min(high, rotary_dim - 1.0))


def yarn_range(rotary_dim: int, theta: float, scaling: RopeScaling) -> tuple[float, float]:
    """The pairs that turn beta_fast and beta_slow times within the original length."""
    original = scaling.original_max_position_embeddings

    def pair_that_turns(times: float) -> float:
        return rotary_dim * math.log(original / (times * 2 * math.pi)) / (2 * math.log(theta))

    low = pair_that_turns(scaling.beta_fast or BETA_FAST)
    high = pair_that_turns(scaling.beta_slow or BETA_SLOW)
    return (math.floor(low), math.ceil(high)) if scaling.truncate else (low, high)


def ramp(count: int, low: float, high: float) -> Array:
    """``count`` numbers that rise from 0 at ``low`` to 1 at ``high``."""
    if low == high:
        high += 0.001
    return np.clip((np.arange(count) - low) / (high - low), 0.0, 1.0)


def factor_of(scaling: RopeScaling | None, explicit: float | None) -> float:
    """What cos and sin are multiplied with."""
    if explicit is not None:
        return explicit
    if scaling is None or scaling.rope_type not in ("yarn", "longrope"):
        return 1.0
    if scaling.attention_factor is not None:
        return scaling.attention_factor
    if scaling.rope_type == "longrope":
        logs = math.log(scaling.factor), math.log(scaling.original_max_position_embeddings)
        return math.sqrt(1.0 + logs[0] / logs[1])
    if scaling.mscale and scaling.mscale_all_dim:
        return magnitude(scaling.factor, scaling.mscale) / magnitude(
            scaling.factor, scaling.mscale_all_dim
        )
    return magnitude(scaling.factor)


def magnitude(factor: float, mscale: float = 1.0) -> float:
    """YaRN's 0.1 m ln(s) + 1 (eq. 22: the square root of 1/t)."""
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0
