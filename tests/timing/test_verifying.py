"""A wrong answer on the timed tensors is found, whatever part of the output it is in."""

from __future__ import annotations

import pytest

from equivalence.registry import entries
from equivalence.timing.calls import prepare
from equivalence.timing.tensors import normal, signs
from equivalence.timing.verifying import judged

DECODE = (2, 8, 1, 64, 96)
PREFILL = (1, 4, 80, 64, 80)


def operands(shape: tuple[int, ...], dtype: str):
    batch, heads, queries, width, tokens = shape
    return {
        "query": normal((batch, heads, queries, width), dtype, (0,)),
        "key": normal((batch, 2, tokens, width), dtype, (1,)),
        "value": normal((batch, 2, tokens, width), dtype, (2,)),
    }


def answer(name: str, given, causal: bool):
    target = entries()[name].load()
    prepared = prepare(target, given, causal=causal)
    return prepared.answer(prepared.call()), target.declaration.profile


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("shape", "causal"), [(DECODE, False), (PREFILL, True)])
def test_right_answers_hold_and_wrong_ones_do_not(dtype, shape, causal):
    given = operands(shape, dtype)
    right, profile = answer("torch.grouped_matmul", given, causal)
    swapped = right[:, [1, 0, *range(2, right.shape[1])]]
    corner = right.copy()
    corner[-1, -1, -1, -1] += 1.0
    early = right[:, :, [*range(1, right.shape[2]), 0]] if causal else right + 0.5
    answers = {
        "right": (right, profile),
        "flash": answer("torch.sdpa_gqa_flash", given, causal),
        "heads": (swapped, profile),
        "corner": (corner, profile),
        "early": (early, profile),
        "short": (right[:, :1], profile),
        "nothing": (None, profile),
    }
    found = judged(answers, given, dtype, causal=causal)
    assert [name for name, verdict in found.items() if verdict.held] == ["right", "flash"]
    assert 0 < found["right"].used <= 1
    assert found["corner"].why.startswith("wrong answer: 1 of ")
    assert "expected" in found["short"].why
    assert found["nothing"].why.startswith("returned no array")


def test_a_bound_that_allows_anything_verifies_nothing():
    given = operands((1, 2, 1, 512, 4), "bfloat16")
    given["query"] *= 64
    given["key"] *= 64
    right, _ = answer("torch.grouped_matmul", given, False)
    found = judged({"right": (right, "full"), "far": (right + 1e6, "full")}, given, "bfloat16",
                   causal=False)  # fmt: skip
    assert found["right"].held is None
    assert found["right"].why == (
        "not verified: the bound of profile full allows any answer at this size"
    )
    assert found["far"].held is False


@pytest.mark.parametrize(("dtype", "held"), [("float32", False), ("bfloat16", True)])
def test_what_limits_says_of_a_missing_key(dtype, held):
    given = operands((1, 8, 1, 64, 4096), dtype)
    fewer = {n: x if n == "query" else x[:, :, :-1] for n, x in given.items()}
    found = judged({"short by one": answer("torch.grouped_matmul", fewer, False)}, given, dtype,
                   causal=False)  # fmt: skip
    assert found["short by one"].held is held


@pytest.mark.parametrize(
    "name", ["varlen.one_by_one", "varlen.padded", "paged.gathered", "paged.page_by_page",
             "cache.contiguous", "cache.preallocated", "cache.paged", "numpy.split_kv"]
)  # fmt: skip
def test_every_kind_of_attention_can_be_prepared(name):
    given = operands(DECODE, "float32")
    found = judged({name: answer(name, given, False)}, given, "float32", causal=False)
    assert found[name].held, found[name].why


@pytest.mark.parametrize(
    "name", ["cache.int8_per_head", "cache.int8_per_channel", "cache.int8_blocks"]
)
def test_an_8_bit_cache_keeps_signs_exactly(name):
    given = operands(DECODE, "float32")
    given = {n: x if n == "query" else signs(x) for n, x in given.items()}
    found = judged({name: answer(name, given, False)}, given, "float32", causal=False)
    assert found[name].held, found[name].why
