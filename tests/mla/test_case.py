"""A case says what is asked, refuses what makes no sense, and gives the same tensors every time."""

import numpy as np
import pytest
from hypothesis import given, settings

from equivalence.errors import InvalidRequest
from equivalence.latent.accounting import (
    cache_bytes,
    cache_elements_per_token,
    equivalent_grouped_heads,
)
from equivalence.latent.calling import laid_out
from equivalence.latent.case import MEMORIES, VALUES, WEIGHTS, MlaCase
from equivalence.latent.domain import MlaDomain
from equivalence.latent.inputs import OPERANDS, latent_inputs
from equivalence.memory import buffer_of
from equivalence.replay import case_text, parse_case
from equivalence.strategies.mla import mla_cases


def test_the_defaults_are_the_smallest_case():
    case = MlaCase()
    assert repr(case) == "MlaCase()"
    sizes = (case.batch_size, case.num_heads, case.head_dim, case.latent_dim, case.q_len)
    assert sizes == (1, 1, 1, 1, 1)
    assert case.rope_dim == 2
    assert case.v_dim == case.head_dim


@given(mla_cases())
@settings(max_examples=40, deadline=None)
def test_the_text_of_a_case_reads_back(case):
    assert parse_case(case_text(case)) == case
    assert all(field not in repr(case) for field in ("=None", "weights='plain'"))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"rope_dim": 3}, "rope_dim=3 must be even"),
        ({"rope_dim": 0}, "rope_dim=0 must be even and at least 2"),
        ({"latent_dim": 0}, "latent_dim=0 must be at least 1"),
        ({"head_dim": -1}, "head_dim=-1 must be at least 1"),
        ({"value_head_dim": 0}, "value_head_dim=0 must be at least 1"),
        ({"query_rank": 0}, "query_rank=0 must be at least 1"),
        ({"kv_len": -2}, "kv_len=-2 must not be negative"),
        ({"weights": "huge"}, "weights='huge' is not one of"),
        ({"values": "odd"}, "values='odd' is not one of"),
        ({"memory": "bhsd"}, "memory='bhsd' is not one of"),
        ({"dtype": "int8"}, "dtype='int8' is not one of"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_value(fields, said):
    with pytest.raises(InvalidRequest, match=said):
        MlaCase(**fields)


@given(mla_cases(MlaDomain(dtypes=("bfloat16", "float64"))))
@settings(max_examples=30, deadline=None)
def test_tensors_have_the_shapes_of_the_contract(case):
    inputs = latent_inputs(case)
    b, h, q, s = case.batch_size, case.num_heads, case.q_len, case.kv_len
    assert inputs.query_content.shape == (b, h, q, case.head_dim)
    assert inputs.query_rotary.shape == (b, h, q, case.rope_dim)
    assert inputs.latent.shape == (b, s, case.latent_dim)
    assert inputs.key_rotary.shape == (b, s, case.rope_dim)
    assert inputs.w_uk.shape == (h, case.head_dim, case.latent_dim)
    assert inputs.w_uv.shape == (h, case.v_dim, case.latent_dim)
    assert all(np.isfinite(getattr(inputs, name)).all() for name in OPERANDS)


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_memory_changes_strides_and_no_number(memory, dtype):
    case = MlaCase(
        batch_size=2, num_heads=3, head_dim=4, value_head_dim=3, latent_dim=5, rope_dim=2,
        q_len=3, kv_len=4, values="normal", weights="realistic", dtype=dtype, memory=memory,
    )  # fmt: skip
    inputs = latent_inputs(case)
    held = laid_out(inputs)
    assert tuple(held) == OPERANDS
    for name, array in held.items():
        np.testing.assert_array_equal(array.astype(np.float64), getattr(inputs, name), name)
    if memory == "joined":
        assert buffer_of(held["latent"]) is buffer_of(held["key_rotary"])
        assert buffer_of(held["w_uk"]) is buffer_of(held["w_uv"])
    if memory in ("cache", "sliced"):
        assert np.isnan(buffer_of(held["latent"]).astype(np.float64)).any()


def test_every_kind_of_values_and_weights_is_drawn():
    seen = set()

    @given(mla_cases())
    @settings(max_examples=500, deadline=None, database=None, derandomize=True)
    def draw(case):
        seen.update((case.values, case.weights, case.memory, case.query_rank is None))

    draw()
    assert {*VALUES, *WEIGHTS, *MEMORIES, True, False} <= seen


def test_query_compression_leaves_the_tokens_alone():
    case = MlaCase(latent_dim=6, kv_len=5, values="normal", weights="realistic", seed=3)
    plain, compressed = latent_inputs(case), latent_inputs(case.but(query_rank=2))
    np.testing.assert_array_equal(plain.latent, compressed.latent)
    np.testing.assert_array_equal(plain.key_rotary, compressed.key_rotary)
    assert not np.array_equal(plain.query_content, compressed.query_content)


def test_the_latent_norm_gives_latents_of_unit_size():
    case = MlaCase(latent_dim=64, kv_len=9, values="outliers", latent_norm=True, dtype="float64")
    sizes = np.sqrt((latent_inputs(case).latent ** 2).mean(axis=-1))
    np.testing.assert_allclose(sizes, 1.0, rtol=1e-5)


def test_deepseek_v2_caches_as_much_as_two_and_a_quarter_grouped_heads():
    case = MlaCase(
        num_heads=128, head_dim=128, latent_dim=512, rope_dim=64, kv_len=4096, dtype="bfloat16"
    )
    assert cache_elements_per_token(case) == 576
    assert equivalent_grouped_heads(case) == 2.25
    assert cache_bytes(case) == 4096 * 576 * 2
