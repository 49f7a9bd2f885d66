"""Suspects of scalings that treat fast and slow pairs apart: YaRN's ramp, and Llama 3's bands.

Each is a sentence and the frequencies that it leads to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from equivalence.dtypes import Array
from equivalence.rope.case import THETA
from equivalence.rope.inputs import RotaryInputs
from equivalence.rope.reference import frequencies, ramp, yarn_ramp, yarn_range
from equivalence.rope.scaling import RopeScaling

Frequencies = Callable[[RotaryInputs, RopeScaling], Array | None]
Mistakes = Iterator[tuple[str, Frequencies]]


def ramps() -> Mistakes:
    """Mistakes of YaRN's ramp (Peng et al. 2023, eq. 18 to 20), the simplest first."""

    def of(rise: Callable[[RotaryInputs, RopeScaling], Array]) -> Frequencies:
        return lambda i, s: _divided(i, s, rise(i, s))

    yield (
        "the ramp runs the wrong way: fast pairs are divided by the factor, slow ones kept",
        of(lambda i, s: 1.0 - yarn_ramp(i.turning, i.theta, s)),
    )
    yield "beta_fast and beta_slow are exchanged", of(_exchanged)
    yield (
        "the ramp is limited to rotary_dim / 2 - 1, expected rotary_dim - 1",
        of(lambda i, s: _limited(i, *yarn_range(i.turning, i.theta, s), i.turning // 2 - 1)),
    )
    yield (
        "the ramp is not limited to 0 and rotary_dim - 1",
        of(lambda i, s: ramp(i.turning // 2, *yarn_range(i.turning, i.theta, s))),
    )
    yield (
        "the ramp is that of head_dim, expected of rotary_dim",
        of(lambda i, s: _limited(i, *yarn_range(i.x.shape[-1], i.theta, s), i.x.shape[-1] - 1)),
    )
    yield (
        f"the ramp is that of theta={THETA:g}, whatever theta is",
        of(lambda i, s: yarn_ramp(i.turning, THETA, s)),
    )
    yield "the ramp counts channels, expected pairs of them", of(_by_channels)


def _exchanged(inputs: RotaryInputs, scaling: RopeScaling) -> Array:
    fast, slow = yarn_range(inputs.turning, inputs.theta, scaling.but(truncate=False))
    low, high = (math.floor(slow), math.ceil(fast)) if scaling.truncate else (slow, fast)
    return _limited(inputs, low, high, inputs.turning - 1)


def _by_channels(inputs: RotaryInputs, scaling: RopeScaling) -> Array:
    low, high = yarn_range(inputs.turning, inputs.theta, scaling)
    return _limited(inputs, low / 2, high / 2, (inputs.turning - 1) / 2)


def _limited(inputs: RotaryInputs, low: float, high: float, most: float) -> Array:
    return ramp(inputs.turning // 2, max(low, 0.0), min(high, most))


def _divided(inputs: RotaryInputs, scaling: RopeScaling, rise: Array) -> Array:
    """Divided by the factor where ``rise`` is 1, kept where it is 0."""
    plain = frequencies(inputs.turning, inputs.theta, None, inputs.length)
    return np.asarray(plain * (1.0 - rise) + plain / scaling.factor * rise)


def bands(scaling: RopeScaling) -> Mistakes:
    """Mistakes of the three bands of Llama 3, the simplest first."""

    def of(rise: Callable[[Array, RopeScaling], Array]) -> Frequencies:
        """``rise`` of the turns of each pair within the original length."""

        def found(inputs: RotaryInputs, s: RopeScaling) -> Array:
            plain = frequencies(inputs.turning, inputs.theta, None, inputs.length)
            turns = s.original_max_position_embeddings * plain / (2 * math.pi)
            return _divided(inputs, s, np.asarray(rise(turns, s)))

        return found

    yield (
        "the frequencies between the bands are not blended: they are divided",
        of(lambda turns, s: turns < s.high_freq_factor),
    )
    yield (
        "the frequencies between the bands are not blended: they are kept",
        of(lambda turns, s: turns < s.low_freq_factor),
    )
    yield (
        "the wrong way round: fast pairs are divided by the factor, slow ones kept",
        of(_smooth),
    )
    yield (
        "the blend between the bands runs the wrong way",
        of(
            lambda turns, s: np.where(
                (turns >= s.low_freq_factor) & (turns <= s.high_freq_factor),
                _smooth(turns, s),
                1.0 - _smooth(turns, s),
            )
        ),
    )
    yield (
        "the blend is linear in the wavelength, expected in its inverse",
        of(_by_wavelength),
    )
    for name, usual in (("low_freq_factor", 1.0), ("high_freq_factor", 4.0)):
        if getattr(scaling, name) != usual:
            yield (
                f"{name} is taken for {usual:g}",
                lambda i, s, name=name, usual=usual: frequencies(  # type: ignore[misc]
                    i.turning, i.theta, s.but(**{name: usual}), i.length
                ),
            )


def _smooth(turns: Array, scaling: RopeScaling) -> Array:
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    return np.clip((turns - low) / (high - low), 0.0, 1.0)


def _by_wavelength(turns: Array, scaling: RopeScaling) -> Array:
    shortest, longest = 1 / scaling.high_freq_factor, 1 / max(scaling.low_freq_factor, 1e-9)
    return np.clip((1 / turns - shortest) / (longest - shortest), 0.0, 1.0)
