"""The arithmetic of one token, and what it says of the documented designs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equivalence.accounting import (
    compare_designs,
    equivalent_gqa_groups,
    kv_elements_per_token,
    mla_elements_per_token,
)
from equivalence.errors import InvalidRequest

many = settings(deadline=None)
sizes = st.integers(1, 512)


def test_latent_of_the_documented_layer_is_two_and_a_quarter_heads() -> None:
    assert mla_elements_per_token(latent_dim=512, rope_dim=64) == 576
    assert equivalent_gqa_groups(latent_dim=512, rope_dim=64, head_dim=128) == 2.25


@many
@given(head_dim=st.integers(1, 256).map(lambda half: 2 * half))
def test_deepseek_v2_ratios_are_two_and_a_quarter_heads_at_any_width(head_dim: int) -> None:
    groups = equivalent_gqa_groups(
        latent_dim=4 * head_dim, rope_dim=head_dim // 2, head_dim=head_dim
    )
    assert groups == 2.25


@many
@given(heads=sizes, head_dim=sizes, value_head_dim=sizes, layers=sizes)
def test_elements_are_counted_one_by_one(
    heads: int, head_dim: int, value_head_dim: int, layers: int
) -> None:
    counted = kv_elements_per_token(
        num_kv_heads=heads, head_dim=head_dim, value_head_dim=value_head_dim, num_layers=layers
    )
    one_layer = sum(head_dim + value_head_dim for _ in range(heads))
    assert counted == sum(one_layer for _ in range(layers))


@pytest.mark.parametrize("name", ["num_kv_heads", "head_dim", "num_layers"])
def test_sizes_below_one_are_refused_by_name(name: str) -> None:
    given_sizes = {"num_kv_heads": 1, "head_dim": 1, "num_layers": 1, name: 0}
    with pytest.raises(InvalidRequest, match=f"{name}=0 must be at least 1"):
        kv_elements_per_token(**given_sizes)


def test_designs_at_16_heads_of_128() -> None:
    designs = compare_designs(num_heads=16, head_dim=128)
    assert [(one.name, one.elements) for one in designs] == [
        ("MHA, 16 heads", 4096),
        ("GQA, 4 heads", 1024),
        ("MLA, latent 512+64", 576),
        ("GQA, 2 heads", 512),
        ("MQA, 1 head", 256),
    ]
    assert [round(one.smaller, 1) for one in designs] == [1, 4, 7.1, 8, 16]


def test_designs_at_a_layer_of_deepseek_v2() -> None:
    designs = compare_designs(num_heads=128, head_dim=128, kv_heads=[8])
    assert [one.elements for one in designs] == [32768, 2048, 576, 256]


@many
@given(kv_heads=sizes, group=sizes, head_dim=sizes, latent=sizes, rope=st.integers(0, 64))
def test_designs_are_sorted_and_count_themselves_in_heads(
    kv_heads: int, group: int, head_dim: int, latent: int, rope: int
) -> None:
    designs = compare_designs(
        num_heads=kv_heads * group,
        head_dim=head_dim,
        kv_heads=[kv_heads],
        latent_dim=latent,
        rope_dim=rope,
    )
    elements = [one.elements for one in designs]
    assert elements == sorted(elements, reverse=True)
    for one in designs:
        assert one.kv_heads * 2 * head_dim == pytest.approx(one.elements)
        assert one.smaller * one.elements == pytest.approx(2 * kv_heads * group * head_dim)


def test_grouped_heads_that_do_not_divide_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="num_heads=16 must be a multiple of num_kv_heads=5"):
        compare_designs(num_heads=16, head_dim=128, kv_heads=[5])
