"""The float64 rotation against 50 digits, against transformers, and against itself."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings

from equivalence.rope.case import RotaryCase
from equivalence.rope.domain import RotaryDomain
from equivalence.rope.inputs import rotary_inputs
from equivalence.rope.reference import factor_of, frequencies, pairs, rotary
from equivalence.rope.scaling import RopeScaling
from equivalence.strategies.rotary import MODEL_ROTARY, rotary_cases

SCALINGS = [
    None,
    RopeScaling(rope_type="linear", factor=3.0),
    RopeScaling(rope_type="dynamic", factor=4.0, original_max_position_embeddings=64),
    RopeScaling(rope_type="yarn", factor=4.0, original_max_position_embeddings=4096),
    RopeScaling(
        rope_type="yarn", factor=40.0, original_max_position_embeddings=4096, mscale=0.707,
        mscale_all_dim=1.0, truncate=False, beta_fast=16.0,
    ),
    RopeScaling(rope_type="llama3", factor=8.0, original_max_position_embeddings=8192),
    RopeScaling(rope_type="longrope", factor=32.0, original_max_position_embeddings=4096),
]  # fmt: skip


def exact_frequencies(rotary_dim, theta, scaling, length):
    """The frequencies at 50 digits, written from the papers once more."""
    m, r = mpmath, rotary_dim
    plain = [m.mpf(theta) ** (-m.mpf(2 * i) / r) for i in range(r // 2)]
    if scaling is None:
        return plain
    f, original = m.mpf(scaling.factor), m.mpf(scaling.original_max_position_embeddings)
    match scaling.rope_type:
        case "linear":
            return [w / f for w in plain]
        case "dynamic":
            ratio = max(m.mpf(length), original) / original
            base = m.mpf(theta) * (f * ratio - (f - 1)) ** (m.mpf(r) / (r - 2))
            return [base ** (-m.mpf(2 * i) / r) for i in range(r // 2)]
        case "llama3":
            low, high = m.mpf(scaling.low_freq_factor), m.mpf(scaling.high_freq_factor)
            found = []
            for w in plain:
                wavelength = 2 * m.pi / w
                if wavelength < original / high:
                    found.append(w)
                elif wavelength > original / low:
                    found.append(w / f)
                else:
                    smooth = (original / wavelength - low) / (high - low)
                    found.append((1 - smooth) * w / f + smooth * w)
            return found
        case "longrope":
            name = "long_factor" if length > original else "short_factor"
            return [w / m.mpf(d) for w, d in zip(plain, scaling.factors(name, r // 2), strict=True)]
    edges = [
        r * m.log(original / (turns * 2 * m.pi)) / (2 * m.log(theta))
        for turns in (scaling.beta_fast or 32, scaling.beta_slow or 1)
    ]
    if scaling.truncate:
        edges = [m.floor(edges[0]), m.ceil(edges[1])]
    low, high = max(edges[0], 0), min(edges[1], r - 1)
    ramps = [min(max((i - low) / (high - low), 0), 1) for i in range(r // 2)]
    return [w / f * ramp + w * (1 - ramp) for w, ramp in zip(plain, ramps, strict=True)]


@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda s: s.rope_type if s else "none")
@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_every_channel_agrees_with_fifty_digits(scaling, pairing):
    case = RotaryCase(
        seq_len=4, head_dim=18, rotary_dim=16, pairing=pairing, theta=500_000.0, start=3,
        step=300_001, scaling=scaling, values="normal", dtype="float64",
    )  # fmt: skip
    inputs = rotary_inputs(case)
    found = rotary(inputs)
    with mpmath.workdps(50):
        omega = exact_frequencies(16, case.theta, scaling, inputs.length)
        factor = mpmath.mpf(found.factor)
        for slot, position in enumerate(inputs.positions):
            for pair, (one, two) in enumerate(zip(*pairs(16, pairing), strict=True)):
                angle = int(position) * omega[pair]
                x, y = (mpmath.mpf(float(inputs.x[0, 0, slot, c])) for c in (one, two))
                turned = (
                    factor * (x * mpmath.cos(angle) - y * mpmath.sin(angle)),
                    factor * (y * mpmath.cos(angle) + x * mpmath.sin(angle)),
                )
                for channel, exact in zip((one, two), turned, strict=True):
                    # |phi| times a few roundings of float64
                    allowed = 1e-14 + float(angle) * 64 * 2.0**-53
                    assert abs(float(found.output[0, 0, slot, channel] - exact)) < 5 * allowed


def test_a_quarter_turn_by_hand():
    case = RotaryCase(head_dim=4, start=1, values="ramp")
    inputs = rotary_inputs(case)
    one, slow = math.cos(1), math.cos(0.01)
    expected = [
        1 * one - 3 * math.sin(1),
        2 * slow - 4 * math.sin(0.01),
        3 * one + 1 * math.sin(1),
        4 * slow + 2 * math.sin(0.01),
    ]
    assert np.allclose(rotary(inputs).output[0, 0, 0], expected, rtol=1e-15)


def test_attention_factors():
    yarn = RopeScaling(rope_type="yarn", factor=4.0)
    temperature = 0.1 * math.log(4) + 1
    assert factor_of(None, None) == 1.0
    assert factor_of(RopeScaling(rope_type="llama3"), None) == 1.0
    assert factor_of(yarn, None) == temperature
    assert factor_of(yarn, 0.5) == 0.5
    assert factor_of(yarn.but(attention_factor=1.25), None) == 1.25
    assert factor_of(yarn.but(mscale=1.0, mscale_all_dim=1.0), None) == 1.0
    half = yarn.but(mscale=0.5, mscale_all_dim=1.0)
    assert factor_of(half, None) == (0.05 * math.log(4) + 1) / temperature
    long = RopeScaling(rope_type="longrope", factor=32.0, original_max_position_embeddings=4096)
    assert factor_of(long, None) == math.sqrt(1 + math.log(32) / math.log(4096))


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(rotary_cases(RotaryDomain(dtypes=("float64",), furthest=4_000)))
def test_the_reference_keeps_the_laws(case):
    inputs = rotary_inputs(case.but(scaling=None, attention_factor=None))
    found = rotary(inputs)
    first, second = pairs(inputs.turning, inputs.pairing)

    def lengths(x):
        return np.hypot(x[..., first], x[..., second])

    size = np.abs(inputs.x).max() + 1e-300
    assert np.abs(lengths(found.output) - lengths(inputs.x)).max() < 1e-14 * size
    assert (found.output[..., inputs.turning :] == inputs.x[..., inputs.turning :]).all()
    back = rotary(inputs.but(x=found.output, positions=np.full_like(inputs.positions, 11)))
    whole = rotary(inputs.but(positions=inputs.positions + 11))
    assert np.abs(back.output - whole.output).max() < 1e-11 * size
    still = rotary(inputs.but(positions=np.zeros_like(inputs.positions)))
    assert (still.output == inputs.x).all()


@pytest.mark.parametrize("model", MODEL_ROTARY)
@pytest.mark.parametrize("length", [10, 100_000])
def test_frequencies_are_those_of_transformers(model, length):
    pytest.importorskip("transformers")
    from equivalence.backends.rotary_transformers import _embedding

    head_dim, rotary_dim, _, theta, scaling = MODEL_ROTARY[model]
    turning = rotary_dim or head_dim
    import json

    import torch

    parameters = (scaling or RopeScaling()).as_dict(theta=theta, rotary_dim=turning)
    embedding = _embedding("gpt_neox", json.dumps(parameters), head_dim, turning)
    embedding(torch.zeros(1), torch.tensor([[length - 1]]))
    ours = frequencies(turning, theta, scaling, length)
    assert np.allclose(embedding.inv_freq.double().numpy(), ours, rtol=2e-5)
    assert math.isclose(embedding.attention_scaling, factor_of(scaling, None), rel_tol=1e-12)
