"""A looser profile allows more; what each preset counts is written down once more."""

import dataclasses

import numpy as np
import pytest

from equivalence.bounds import allowance, combination_error, lse_allowance
from equivalence.case import AttentionCase
from equivalence.errors import InvalidRequest
from equivalence.gradients import gradients
from equivalence.inputs import attention_inputs
from equivalence.masks import Mask
from equivalence.profiles import LOOSENING, PROFILES, profile_for, profile_named
from equivalence.reference import attention

# (n_s, n_p, n_q, n_b, u store, u accumulate): the table of docs/bound.md
COUNTS = {
    "f64": (0, 0, 0, 0, None, "float64"),
    "f32": (0, 0, 0, 0, None, "float32"),
    "flash": (0, 1, 0, 0, None, "float32"),
    "split": (0, 1, 0, 0, None, "float32"),
    "f64_split": (0, 0, 0, 0, None, "float64"),
    "eager": (3, 1, 0, 1, None, "float32"),
    "math": (2, 1, 2, 1, None, "float32"),
    "full": (3, 2, 2, 1, None, None),
    "single": (3, 2, 2, 2, "float32", "float32"),
    "bf16_inside": (3, 2, 2, 2, "bfloat16", "float32"),
    "fast_tanh": (3, 1, 0, 1, None, "float32"),
    "graph": (3, 1, 2, 1, None, "float32"),
    "core_ai": (3, 2, 2, 1, None, None),
}
CASES = [
    AttentionCase(q_len=3, kv_len=9, head_dim=8, values="normal", magnitude=3.0),
    AttentionCase(q_len=3, kv_len=9, head_dim=8, values="outliers", softcap=5.0, sinks=True),
    AttentionCase(
        q_len=3, kv_len=9, head_dim=8, values="heavy_tailed", alibi=True,
        mask=Mask(pattern="random", form="float", size=80, bias=3.0),
    ),
]  # fmt: skip


@pytest.mark.parametrize("name", PROFILES)
def test_presets(name):
    p = PROFILES[name]
    assert COUNTS[name] == (
        p.score_roundings, p.probability_roundings, p.query_roundings, p.bias_roundings,
        p.store, p.accumulate,
    )  # fmt: skip
    assert (p.exp_ulps, p.blocks) == (4.0, 8)
    assert p.tanh_error == (2.0**-10 if name == "fast_tanh" else 0.0)
    assert p.merges == (name in ("split", "f64_split"))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("place", range(len(CASES)))
def test_each_looser_profile_allows_more(place, dtype):
    inputs = attention_inputs(CASES[place].but(dtype=dtype))
    exact = attention(inputs)
    upstream = np.ones_like(exact.output)
    before = None
    # math against eager is no loosening of every term: n_s is smaller and n_q larger.
    for name in ("f32", "flash", "eager", "full"):
        profile = PROFILES[name]
        output = allowance(inputs, exact, profile).allowed
        found = [
            output,
            lse_allowance(inputs, exact, profile),
            combination_error(inputs, exact, profile),
            *gradients(inputs, exact, output, upstream, profile).allowed,
        ]
        if before is not None:
            for tight, loose in zip(before, found, strict=True):
                assert (tight <= loose).all()
        before = found
    assert [name for name in LOOSENING if name != "math"] == [
        "f64",
        "f32",
        "flash",
        "eager",
        "full",
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"score_roundings": 4}, {"probability_roundings": 2}, {"query_roundings": 1},
        {"bias_roundings": 2}, {"exp_ulps": 8.0}, {"tanh_error": 2.0**-10}, {"blocks": 64},
        {"accumulate": "bfloat16"}, {"merges": True},
    ],
    ids=str,
)  # fmt: skip
def test_each_count_loosens_the_bound(change):
    case = CASES[2].but(dtype="bfloat16", softcap=5.0)
    inputs = attention_inputs(case)
    exact = attention(inputs)
    tight, eager = allowance(inputs, exact, PROFILES["eager"]).allowed, PROFILES["eager"]
    loose = allowance(inputs, exact, dataclasses.replace(eager, **change)).allowed
    assert (loose >= tight).all()
    assert (loose > tight).any()


def test_float64_is_given_the_error_of_its_reference_as_well():
    inputs = attention_inputs(CASES[0].but(dtype="float64"))
    exact = attention(inputs)
    alone = dataclasses.replace(PROFILES["f64"], accumulate=None)  # float64, for such a case
    twice = allowance(inputs, exact, PROFILES["f64"]).allowed
    np.testing.assert_allclose(twice, 2 * allowance(inputs, exact, alone).allowed, rtol=1e-5)


@pytest.mark.parametrize(
    ("dtype", "declared", "expected"),
    [
        ("float64", "eager", "f64"),
        ("float64", "single", "single"),
        ("float32", "single", "f32"),
        ("float32", "eager", "f32"),
        ("float32", "bf16_inside", "bf16_inside"),
        ("float16", None, "eager"),
        ("bfloat16", "flash", "flash"),
        ("bfloat16", "fast_tanh", "fast_tanh"),
        ("float64", "split", "f64_split"),
        ("float32", "split", "split"),
        ("float16", "split", "split"),
    ],
)
def test_which_profile_judges(dtype, declared, expected):
    assert profile_for(dtype, declared).name == expected


def test_an_unknown_profile_is_named():
    with pytest.raises(InvalidRequest, match="profile='sloppy' is not one of f64, f32, flash"):
        profile_named("sloppy")
