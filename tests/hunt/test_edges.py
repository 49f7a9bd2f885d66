"""Cases at the edges of tiles lie in their domain, and the plainest cases are simple ones."""

from __future__ import annotations

import pytest
import torch

from equivalence.calling import LocalTarget
from equivalence.case import AttentionCase
from equivalence.domain import Domain
from equivalence.engine import Request, check_target
from equivalence.inputs import attention_inputs
from equivalence.masks import Mask
from equivalence.plainest import plainest
from equivalence.search import size_of
from equivalence.strategies.edges import attention_edges
from equivalence.strategies.plain import attention_admits, attention_within
from tests.hunt.test_pairs import DOMAINS, WIDE

ODD = WIDE.but(zero_scale=True, negative_scale=True)


@pytest.mark.parametrize("domain", DOMAINS)
def test_edges_stay_in_their_domain(domain: Domain) -> None:
    cases = list(attention_edges(domain, 3))
    assert all(attention_admits(domain, case) for case in cases)
    assert all(domain.kv_lens is None or case.kv_len in domain.kv_lens for case in cases)
    assert all(domain.head_dims is None or case.head_dim in domain.head_dims for case in cases)
    assert all(case.q_len == case.kv_len for case in cases) or not domain.square


@pytest.mark.parametrize("tile", [16, 32, 64, 128])
@pytest.mark.parametrize("kind", [int, tuple])
def test_some_window_starts_where_a_tile_does(tile: int, kind: type) -> None:
    starts = set()
    for case in attention_edges(WIDE, 0):
        if isinstance(case.window, kind) and case.band is not None:
            first = case.kv_len - case.q_len - case.band[0]
            starts |= {(case.q_len > 1, first + row) for row in range(case.q_len)}
    assert {long for long, start in starts if start > 0 and start % tile == 0} == {True, False}


def test_a_left_side_of_no_earlier_key_is_asked_for() -> None:
    asked = [case for case in attention_edges(WIDE, 0) if case.window == (0, -1)]
    assert [(case.q_len > 1, case.kv_len > case.q_len) for case in asked] == [(True, True)]
    assert not any(
        case.window == (0, -1) for case in attention_edges(WIDE.but(windows=("int",)), 0)
    )


def test_as_many_queries_as_no_drawn_case_has_are_asked_for() -> None:
    (longest,) = [case for case in attention_edges(WIDE, 0) if case.q_len > 33]
    assert (longest.q_len, longest.kv_len, longest.causal) == (129, 129, WIDE.causal[-1])
    few = WIDE.but(q_len=(1, 8))
    assert max(case.q_len for case in attention_edges(few, 0)) == 8
    large = WIDE.but(head_layouts=((8, 4, 128),))
    assert max(case.q_len for case in attention_edges(large, 0)) == 65
    fixed = WIDE.but(kv_lens=(4096,))
    assert max(case.q_len for case in attention_edges(fixed, 0)) == 33


def test_a_mistake_in_the_second_tile_of_queries_is_found() -> None:
    def one_late(query, key, value, *, is_causal=False):
        group = query.shape[1] // key.shape[1]
        key, value = (x.repeat_interleave(group, 1) for x in (key, value))
        scores = query @ key.mT * query.shape[-1] ** -0.5
        if is_causal:
            last = torch.arange(query.shape[2]) + key.shape[2] - query.shape[2]
            last[64:] -= 1
            scores = scores.masked_fill(torch.arange(key.shape[2]) > last[:, None], -torch.inf)
        return scores.softmax(-1) @ value

    target = LocalTarget.of(one_late, name="one late", facts={"causal": "lower_right"})
    asked = Request(examples=60, dtypes=("float32",), laws=("agrees-with-float64",))
    (failure,) = check_target(target, asked).failures
    assert failure.case.q_len == 65


def test_scales_of_and_below_zero_are_asked_for_where_nothing_is_hidden() -> None:
    for domain in (ODD, ODD.but(causal=("lower_right",))):
        odd = [case for case in attention_edges(domain, 0) if case.scale in (0.0, -0.5)]
        assert len(odd) == 2
        assert all(case.causal is None or case.q_len == 1 for case in odd)
    assert not [c for c in attention_edges(WIDE, 0) if c.scale is not None and c.scale <= 0]
    upper = ODD.but(causal=("upper_left",))
    assert not [c for c in attention_edges(upper, 0) if c.scale is not None and c.scale <= 0]


def test_the_plainest_cases_have_what_all_failing_ones_share() -> None:
    failing = [
        AttentionCase(
            batch_size=2, num_kv_heads=3, group_size=4, q_len=5, kv_len=20, softcap=cap, seed=seed,
            values="normal", mask=Mask(pattern="random", size=50) if seed % 2 else None,
        )
        for seed, cap in enumerate((1.0, 5.0, 20.0, 50.0))
    ]  # fmt: skip
    found = plainest(failing)
    assert found == sorted(found, key=size_of)
    assert all(case.softcap == 1.0 and case.mask is None for case in found)
    assert all(min(c.batch_size, c.num_kv_heads) > 1 or c.group_size > 1 for c in found)


def test_of_few_failing_cases_each_option_is_tried_alone() -> None:
    found = plainest([AttentionCase(q_len=4, kv_len=9, sinks=True, softcap=5.0, values="normal")])
    options = {(case.sinks, case.softcap) for case in found}
    assert options == {(False, None), (True, None), (False, 1.0), (True, 1.0)}


def test_a_domain_has_the_cases_within_its_sizes_and_numbers() -> None:
    single = Domain(num_kv_heads=(1, 1), group_size=(1, 1))
    assert attention_within(single, AttentionCase(kv_len=500))
    assert not attention_within(single, AttentionCase(group_size=2))
    assert not attention_within(Domain(values=("ramp",)), AttentionCase(values="normal"))
    assert not attention_within(Domain(scale=False), AttentionCase(scale=0.5))


@pytest.mark.parametrize("form", ["bool", "float"])
def test_a_mask_hides_the_key_that_stands_alone_in_its_tile(form: str) -> None:
    masks = [(case.kv_len, case.mask) for case in attention_edges(WIDE, 0) if case.mask]
    padded = [(kv_len, mask.form) for kv_len, mask in masks if mask.pattern == "padding"]
    assert padded.count((129, form)) == 1
    assert all(mask.size == 128 for _, mask in masks if mask.pattern == "padding")
    assert [(kv_len, mask.axes) for kv_len, mask in masks if mask.pattern != "padding"] == [
        (27, "b")
    ]
    assert not [case for case in attention_edges(WIDE.but(masks=()), 0) if case.mask]


def test_masks_by_row_are_asked_for_where_they_fit_the_heads_as_well() -> None:
    found = [case for case in attention_edges(WIDE, 0) if case.mask and "b" in case.mask.axes]
    assert [
        (case.batch_size, case.num_kv_heads, case.mask.axes) for case in found if case.mask
    ] == [(2, 2, "b")]
    rows = attention_inputs(found[0]).mask
    assert rows is not None
    assert rows.shape[1] == 1
    assert (rows[0] != rows[1]).any()
    for domain in (WIDE.but(batch_size=(1, 1)), WIDE.but(num_kv_heads=(1, 1)), WIDE.but(masks=())):
        assert not [
            case for case in attention_edges(domain, 0) if case.mask and "b" in case.mask.axes
        ]


def test_the_widest_heads_are_asked_for() -> None:
    assert max(case.head_dim for case in attention_edges(WIDE, 0)) == 256
    assert max(case.head_dim for case in attention_edges(WIDE.but(head_dims=(8, 64)), 0)) == 64
    pinned = WIDE.but(head_layouts=((2, 2, 32),))
    assert {case.head_dim for case in attention_edges(pinned, 0)} == {32}


def test_one_product_is_larger_than_float16_holds() -> None:
    (case,) = [case for case in attention_edges(WIDE, 0) if case.plants]
    inputs = attention_inputs(case)
    products = inputs.query @ inputs.key[:, inputs.kv_head_of].swapaxes(-1, -2)
    assert (abs(products) > 65504).sum() == 1
