"""Rotary cases: small defaults, text that parses back, positions in words, refusals with values."""

import numpy as np
import pytest

from equivalence.errors import InvalidRequest
from equivalence.replay import parse_case
from equivalence.rope.case import RotaryCase
from equivalence.rope.inputs import RotaryInputs, rotary_inputs
from equivalence.rope.scaling import RopeScaling


def test_the_default_is_the_smallest_case():
    case = RotaryCase()
    assert repr(case) == "RotaryCase()"
    assert rotary_inputs(case).x.shape == (1, 1, 1, 2)


@pytest.mark.parametrize(
    "case",
    [
        RotaryCase(),
        RotaryCase(head_dim=7, rotary_dim=4, pairing="interleaved", theta=5e5, start=65_535),
        RotaryCase(batch_size=3, seq_len=5, row_step=300, padding=2, dtype="bfloat16"),
        RotaryCase(
            head_dim=4,
            scaling=RopeScaling(
                rope_type="longrope", short_factor=(1.0, 1.5), long_factor=(1.0, 4.0)
            ),
            attention_factor=1.5,
        ),
        RotaryCase(scaling=RopeScaling(rope_type="yarn", mscale=0.707, truncate=False)),
    ],
)
def test_its_text_parses_back(case):
    assert parse_case(repr(case)) == case


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"rotary_dim": 3, "head_dim": 4}, "rotary_dim=3 must be even"),
        ({"head_dim": 5}, "rotary_dim=5 must be even"),
        ({"rotary_dim": 4}, "rotary_dim=4 must not be above head_dim=2"),
        ({"rotary_dim": 0}, "rotary_dim=0 must be even and at least 2"),
        ({"start": -1}, "start=-1 must not be negative"),
        ({"start": 2**24, "seq_len": 2}, "the last position is 16,777,217"),
        ({"theta": 1.0}, "theta=1.0 must be above 1"),
        ({"pairing": "neox"}, "pairing='neox' is not one of"),
        ({"attention_factor": 0.0}, "attention_factor=0.0 must be positive"),
        ({"memory": "expanded"}, "memory='expanded' is not one of"),
        ({"scaling": RopeScaling(rope_type="dynamic")}, "rotary_dim=2 must be at least 4"),
        (
            {"scaling": RopeScaling(rope_type="longrope", long_factor=(1.0, 2.0, 3.0))},
            "long_factor must hold 1 numbers for rotary_dim=2, not 3",
        ),
    ],
)
def test_bad_dimensions_are_refused_with_their_values(fields, said):
    with pytest.raises(InvalidRequest, match=said.replace("(", r"\(")):
        RotaryCase(**fields)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"rope_type": "ntk"}, "rope_type='ntk' is not one of"),
        ({"rope_type": "linear", "mscale": 1.0}, "'linear' does not read mscale=1.0"),
        ({"rope_type": "linear", "factor": 0.5}, "factor=0.5 must be at least 1"),
        (
            {"rope_type": "llama3", "low_freq_factor": 4.0},
            "low_freq_factor=4.0 must be below high_freq_factor=4.0",
        ),
        ({"rope_type": "yarn", "original_max_position_embeddings": 6}, "=6 must be above 2 pi"),
    ],
)
def test_bad_scalings_are_refused_with_their_values(fields, said):
    with pytest.raises(InvalidRequest, match=said):
        RopeScaling(**fields)


def test_positions_of_the_wrong_length_are_refused_with_both_lengths():
    with pytest.raises(InvalidRequest, match=r"positions \[3\] must have shape \[2\] or \[1, 2\]"):
        RotaryInputs(x=np.zeros((1, 1, 2, 4)), positions=np.arange(3), dtype="float32")


def test_positions_in_words():
    assert RotaryCase(seq_len=3, start=255).positions().tolist() == [255, 256, 257]
    rows = RotaryCase(batch_size=2, seq_len=3, start=5, step=2, row_step=100)
    assert rows.positions().tolist() == [[5, 7, 9], [105, 107, 109]]
    padded = RotaryCase(batch_size=3, seq_len=4, start=1, padding=2)
    assert padded.positions().tolist() == [[0, 0, 1, 2], [0, 1, 2, 3], [1, 2, 3, 4]]
    assert RotaryCase(seq_len=2, padding=9).positions().tolist() == [[0, 0]]
    assert RotaryCase(per_row=True).positions().shape == (1, 1)


def test_a_scaling_is_the_dict_of_hugging_face():
    scaling = RopeScaling(rope_type="yarn", factor=4.0, mscale=1.0, truncate=False)
    given = scaling.as_dict(theta=1e4, rotary_dim=8)
    assert given == {
        "rope_type": "yarn",
        "rope_theta": 1e4,
        "factor": 4.0,
        "original_max_position_embeddings": 8,
        "mscale": 1.0,
        "truncate": False,
    }
    assert RopeScaling.of(given) == scaling
    long = RopeScaling(rope_type="longrope", factor=3.0).as_dict(theta=1e4, rotary_dim=6)
    assert long["short_factor"] == [1.0, 1.0, 1.0]
    assert long["long_factor"] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_numbers_are_stored_ones_and_repeat(dtype):
    case = RotaryCase(head_dim=8, seq_len=3, values="heavy_tailed", seed=3, dtype=dtype)
    first = rotary_inputs(case).x.copy()
    rotary_inputs.cache_clear()
    assert (rotary_inputs(case).x == first).all()
    assert np.abs(first).max() < 65504
