"""Every two options meet in the cases that cover pairs, and every case stays in its domain."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equivalence.domain import Domain
from equivalence.masks import FORMS
from equivalence.strategies.pairs import attention_pairs, covering_rows, possible_pairs
from equivalence.strategies.plain import (
    Row,
    attention_admits,
    attention_allows,
    attention_factors,
    plain_attention,
)

WIDE = Domain(
    softcap=True, sinks=True, alibi=True, kv_lengths=True, windows=("int", "pair"),
    head_orders=("grouped", "interleaved"),
)  # fmt: skip
DOMAINS = (
    WIDE,
    WIDE.but(mask_and_causal=True),
    WIDE.but(needs_causal=("window", "softcap"), mask_and_causal=True),
    WIDE.but(causal=("lower_right",), masks=()),
    WIDE.but(longer_queries=False),
    Domain(square=True, kv_lens=(1, 16), masks=()),
    Domain(kv_lens=(7, 64), q_lens=(1, 8), head_dims=(64,), empty_rows=False),
    Domain(head_layouts=((8, 4, 128),)),
)
levels = st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True)
factors = st.dictionaries(st.sampled_from("abcdef"), levels, max_size=6)


@settings(max_examples=40, deadline=None)
@given(factors, st.sets(st.tuples(*[st.sampled_from("abcdef"), st.integers(0, 9)] * 2), max_size=6))
def test_every_possible_pair_and_no_forbidden_one(
    factors: dict[str, list[int]], forbidden: set[tuple[str, int, str, int]]
) -> None:
    def allows(row: Row) -> bool:
        return not any(row.get(a) == x and row.get(b) == y for a, x, b, y in forbidden)

    rows = covering_rows(factors, allows)
    have = {pair for row in rows for pair in combinations(row.items(), 2)}
    # By brute force: a pair is possible where some whole row has it.
    whole = [dict(zip(factors, values, strict=True)) for values in product(*factors.values())]
    possible = {pair for row in whole if allows(row) for pair in combinations(row.items(), 2)}
    assert have == possible == set(possible_pairs(factors, allows))
    assert all(allows(row) and list(row) == list(factors) for row in rows)
    assert covering_rows(factors, allows) == rows


def test_few_rows_cover_many_pairs() -> None:
    factors = attention_factors(WIDE)
    rows = covering_rows(factors, lambda row: attention_allows(WIDE, row))
    pairs = list(possible_pairs(factors, lambda row: attention_allows(WIDE, row)))
    assert len(pairs) > 350
    assert len(rows) < 45


@pytest.mark.parametrize("domain", DOMAINS)
def test_cases_stay_in_their_domain(domain: Domain) -> None:
    cases = [
        *attention_pairs(domain, 5),
        *(plain_attention(domain, np.random.default_rng([1, seed])) for seed in range(150)),
    ]
    for case in cases:
        assert attention_admits(domain, case)
        assert case.mask is None or case.causal is None or domain.mask_and_causal
        assert domain.q_lens is None or case.q_len in domain.q_lens
        assert domain.kv_lens is None or case.kv_len in domain.kv_lens
        assert not domain.square or case.q_len == case.kv_len
        assert domain.longer_queries or case.q_len <= case.kv_len
        assert domain.head_dims is None or case.head_dim in domain.head_dims
        assert case.memory in domain.memories
        assert case.batch_size <= domain.batch_size[1]
        layouts = domain.head_layouts
        layout = (case.num_kv_heads, case.group_size, case.head_dim)
        assert layouts is None or layout in layouts


def test_the_cases_have_the_pairs() -> None:
    cases = list(attention_pairs(WIDE, 0))
    for form, memory in product(FORMS, WIDE.memories):
        assert any(c.mask and c.mask.form == form and c.memory == memory for c in cases)
    assert any(c.softcap and c.sinks for c in cases)
    assert any(isinstance(c.window, tuple) and c.kv_lengths for c in cases)
    assert any(c.alibi and c.q_len > c.kv_len for c in cases)
    assert list(attention_pairs(WIDE, 0)) == cases != list(attention_pairs(WIDE, 1))


def test_shares_of_plain_cases() -> None:
    cases = [plain_attention(Domain(), np.random.default_rng([0, n])) for n in range(600)]
    assert np.median([case.kv_len for case in cases]) >= 16
    assert np.mean([case.num_kv_heads >= 2 and case.group_size >= 2 for case in cases]) >= 0.4
    assert np.mean([case.head_dim in (64, 80, 96, 128, 256) for case in cases]) >= 0.1
