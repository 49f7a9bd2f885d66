"""What is counted of small graphs that can be counted by hand."""

from __future__ import annotations

import pytest
import torch

from equivalence.audit.account import Account, account_of
from equivalence.audit.advice import advice_of
from equivalence.audit.converting import audit_recipe
from equivalence.audit.facts import facts_of
from equivalence.audit.flows import LABEL
from equivalence.audit.read_mil import read_mil
from equivalence.converters.formulations import formulation_named
from equivalence.coreml import conversion
from equivalence.coreml.conversion import program_of
from tests.audit.conftest import SMALL

HEADS, KV_HEADS, WIDTH, CONTEXT = 32, 8, 64, 64
COPY = HEADS * CONTEXT * WIDTH * 2  # one repeated K or V, fp16


def converted(
    formulation: str, *, heads: tuple[int, int] = (6, 2), route: str = "trace"
) -> Account:
    query, key = torch.zeros(1, heads[0], 1, 4), torch.zeros(1, heads[1], 9, 4)
    module = formulation_named(formulation).build()
    program = program_of(module, (query.half(), key.half(), key.half()), route=route)
    return account_of(read_mil(program), name=formulation)


def test_repeat_kv_repeats_keys_and_values_of_every_layer(repeated: Account) -> None:
    assert len(repeated.of_heads) == 4
    assert repeated.head_bytes == repeated.head_bytes_read == 4 * COPY
    assert [one.roles for one in repeated.of_heads] == [["key"], ["value"]] * 2
    assert {(one.matched, one.order) for one in repeated.of_heads} == {((8, 32), "grouped")}
    assert [one.sites for one in repeated.of_heads] == [[0], [0], [1], [1]]


def test_folding_removes_them_and_nothing_that_multiplies(
    repeated: Account, folded: Account
) -> None:
    assert (folded.of_heads, folded.head_bytes) == ([], 0)
    per_layer = 2 * HEADS * CONTEXT * WIDTH
    assert repeated.macs == folded.macs == folded.attention_macs == 2 * per_layer
    assert folded.total_ops < repeated.total_ops
    assert repeated.flow.written - folded.flow.written == 4 * COPY
    assert repeated.flow.read - folded.flow.read == 4 * COPY


def test_the_sizes_of_an_attention_are_read_off_the_graph(
    repeated: Account, folded: Account
) -> None:
    for account, means in ((repeated, "replicated"), (folded, "folded")):
        shape = account.shapes[0]
        assert shape is not None
        found = (shape.num_heads, shape.num_kv_heads, shape.kv_len, shape.head_dim, shape.q_len)
        assert found == (HEADS, KV_HEADS, CONTEXT, WIDTH, 1)
        assert (shape.means, shape.order, shape.dtype) == (means, "grouped", "fp16")


@pytest.mark.parametrize(
    ("formulation", "means", "repeats"),
    [
        ("repeat_kv", "replicated", 2),
        ("q_fold_decode", "folded", 0),
        ("q_fold_prefill", "folded", 0),
        ("broadcast", "broadcast", 0),
        ("einsum", "folded", 0),
        ("sdpa_repeat_kv", "replicated", 2),
        ("sdpa_fold", "folded", 0),
    ],
)
def test_each_formulation_is_told_by_how_it_matches_heads(
    formulation: str, means: str, repeats: int
) -> None:
    account = converted(formulation)
    (shape,) = account.shapes
    assert shape is not None
    assert (shape.num_heads, shape.num_kv_heads, shape.means) == (6, 2, means)
    assert len(account.of_heads) == repeats
    assert account.macs == 2 * 6 * 9 * 4
    assert account.fused == (1 if formulation.startswith("sdpa") else 0)


def test_repeat_interleave_pays_for_transposes_too() -> None:
    account = converted("repeat_interleave", route="export")
    assert len(account.of_heads) == 2
    assert account.rearranged["transpose"][0] == 6


def test_interleaved_heads_cost_a_fold_its_transposes() -> None:
    account = audit_recipe(
        SMALL.but(formulation="q_fold_decode", head_order="interleaved"), name="fold"
    )
    shape = account.shapes[0]
    assert shape is not None
    assert (shape.means, shape.order) == ("folded", "interleaved")
    # Query and output of each layer, 32 x 64 elements in fp16.
    assert account.rearranged["transpose"] == (4, 4 * HEADS * WIDTH * 2)


def test_a_state_is_written_once_a_layer_and_side() -> None:
    account = audit_recipe(SMALL.but(cache="state"), name="state")
    assert account.state_writes == 4
    assert sum(state.updated for state in account.states) == 4 * KV_HEADS * WIDTH * 2
    assert sum(state.bytes for state in account.states) == 4 * KV_HEADS * CONTEXT * WIDTH * 2
    assert account.conditions["cache"] == "state"
    assert len(account.of_heads) == 4


def test_only_many_weights_are_worth_a_search_for_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    searches: list[int] = []
    monkeypatch.setattr("gc.collect", lambda: searches.append(conversion.FEW_WEIGHTS))
    module, example = torch.nn.Linear(4, 4), (torch.zeros(1, 4),)
    for few in (64, 80):  # it holds 80 bytes
        monkeypatch.setattr(conversion, "FEW_WEIGHTS", few)
        conversion.program_of(module, example, convert_to="mlprogram")
    assert searches == [64]


def test_advice_says_which_shape_to_fold_to(repeated: Account, folded: Account) -> None:
    (text,) = advice_of(repeated)
    assert "4 tile repeat 8 key/value heads to 32 (2 feed the products of scores" in text
    assert "[B, 8, 4*L, D]" in text
    assert advice_of(folded) == []


def test_every_figure_in_bytes_is_labelled(repeated: Account) -> None:
    facts = facts_of(repeated)
    assert (
        facts["label"] == LABEL == "logical bytes of the graph: not DRAM traffic, not peak memory"
    )
    assert facts["repeated_heads"] == {
        "count": 4, "bytes_written": 4 * COPY, "bytes_read": 4 * COPY,
    }  # fmt: skip
    assert [one["feeds_scores"] for one in facts["replications"]] == [True, False] * 2
