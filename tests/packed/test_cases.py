"""Packed and paged cases: what is refused, how they read back, and what their tensors hold."""

import numpy as np
import pytest

from equivalence.errors import InvalidRequest
from equivalence.packed.case import PagedCase, VarlenCase
from equivalence.packed.making import paged_inputs, repaged, varlen_inputs
from equivalence.replay import case_text, parse_case
from equivalence.search import polish


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"q_lens": (1, 2)}, r"q_lens=\(1, 2\) and kv_lens=\(1,\)"),
        ({"q_lens": (0,)}, r"at least one query"),
        ({"kv_lens": (-1,)}, r"kv_lens=\(-1,\)"),
        ({"softcap": 0.0}, "softcap=0.0"),
        ({"causal": "left"}, "causal='left'"),
    ],
)
def test_a_bad_packed_case_is_refused_with_its_values(fields, words):
    with pytest.raises(InvalidRequest, match=words):
        VarlenCase(**fields)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"kv_lengths": ()}, r"kv_lengths=\(\)"),
        ({"page_size": 0}, "page_size=0"),
        ({"order": "up"}, "order='up'"),
        ({"spare_pages": -1}, "spare_pages=-1"),
    ],
)
def test_a_bad_paged_case_is_refused_with_its_values(fields, words):
    with pytest.raises(InvalidRequest, match=words):
        PagedCase(**fields)


@pytest.mark.parametrize(
    "case",
    [
        VarlenCase(q_lens=(0, 3), kv_lens=(2, 0), window=(1, 0), dtype="float16"),
        PagedCase(kv_lengths=(0, 5), page_size=2, order="shuffled", causal="lower_right"),
    ],
)
def test_a_case_is_read_back(case):
    assert parse_case(case_text(case)) == case


def test_offsets_bound_each_sequence():
    inputs = varlen_inputs(VarlenCase(q_lens=(1, 0, 2), kv_lens=(3, 1, 0)))
    assert inputs.cu_seqlens_q.tolist() == [0, 1, 1, 3]
    assert inputs.cu_seqlens_k.tolist() == [0, 3, 4, 4]
    assert [piece.sequences for piece in inputs.pieces] == [(0,), (2,)]


@pytest.mark.parametrize("order", ["in_order", "reversed", "shuffled"])
def test_pages_hold_the_same_tokens_in_any_order(order):
    case = PagedCase(kv_lengths=(5, 3), page_size=2, values="normal", spare_pages=2)
    plain, moved = paged_inputs(case), repaged(case, page_size=3, order=order)
    for one, other in zip(plain.pieces, moved.pieces, strict=True):
        np.testing.assert_array_equal(one.inputs.key, other.inputs.key)
        np.testing.assert_array_equal(one.inputs.value, other.inputs.value)
    assert moved.used.sum() == 8


def test_cases_shrink_by_sequences_and_lengths():
    case = VarlenCase(q_lens=(3, 1, 4), kv_lens=(5, 6, 2), num_kv_heads=2)
    assert polish(case, lambda c: sum(c.kv_lens) >= 3) in (
        VarlenCase(kv_lens=(3,)),
        VarlenCase(q_lens=(1,), kv_lens=(3,)),
    )
