"""Laws of pooling key/value heads, on weights and on whole models."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from equivalence.errors import InvalidRequest
from equivalence.pooling import (
    METHODS,
    Method,
    pool_heads,
    pool_state_dict,
    repeat_heads,
    repeat_state_dict,
)
from equivalence.quality.gpt2 import Gpt2, Shape, from_weights

counts = st.integers(1, 4)
seeds = st.integers(0, 2**20)
dtypes = st.sampled_from([torch.float64, torch.float32, torch.bfloat16, torch.float16])
methods = st.sampled_from(METHODS)
exact_methods = st.sampled_from(METHODS[:2])
many = settings(deadline=None)
some = settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def seeded(shape: tuple[int, ...], seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


@many
@given(heads=counts, seed=seeds, dtype=dtypes, method=exact_methods)
def test_at_full_heads_nothing_changes(
    heads: int, seed: int, dtype: torch.dtype, method: Method
) -> None:
    weights = seeded((heads, 3, 5), seed, dtype)
    assert torch.equal(pool_heads(weights, num_kv_heads=heads, method=method), weights)


@many
@given(kv_heads=counts, group=counts, seed=seeds, dtype=dtypes, method=exact_methods)
def test_equal_heads_are_pooled_to_themselves_bit_for_bit(
    kv_heads: int, group: int, seed: int, dtype: torch.dtype, method: Method
) -> None:
    one_each = seeded((kv_heads, 3, 5), seed, dtype)
    repeated = repeat_heads(one_each, group_size=group)
    assert torch.equal(pool_heads(repeated, num_kv_heads=kv_heads, method=method), one_each)


@many
@given(kv_heads=counts, group=counts, seed=seeds, dtype=dtypes, order=st.randoms())
def test_order_inside_a_group_does_not_matter(
    kv_heads: int, group: int, seed: int, dtype: torch.dtype, order: Any
) -> None:
    weights = seeded((kv_heads * group, 3, 5), seed, dtype)
    moved = []
    for first in range(0, kv_heads * group, group):
        members = list(range(first, first + group))
        order.shuffle(members)
        moved += members
    pooled = pool_heads(weights, num_kv_heads=kv_heads)
    assert torch.equal(pool_heads(weights[moved], num_kv_heads=kv_heads), pooled)


@many
@given(kv_heads=counts, group=counts, seed=seeds)
def test_the_mean_is_the_mean(kv_heads: int, group: int, seed: int) -> None:
    weights = seeded((kv_heads * group, 3), seed)
    pooled = pool_heads(weights, num_kv_heads=kv_heads)
    for head in range(kv_heads):
        members = [weights[head * group + member] for member in range(group)]
        torch.testing.assert_close(pooled[head], sum(members) / group, atol=1e-14, rtol=1e-14)


@many
@given(kv_heads=counts, group=counts, seed=seeds, axis=st.integers(-3, 2), method=methods)
def test_any_axis_may_hold_the_heads(
    kv_heads: int, group: int, seed: int, axis: int, method: Method
) -> None:
    weights = seeded((kv_heads * group, 3, 5), seed)
    pooled = pool_heads(weights, num_kv_heads=kv_heads, method=method)
    moved = pool_heads(weights.movedim(0, axis), num_kv_heads=kv_heads, axis=axis, method=method)
    assert torch.equal(moved.movedim(axis, 0), pooled)


def test_random_heads_have_the_spread_of_the_old_and_a_seed() -> None:
    weights = 3 * seeded((12, 64, 64), 0)
    pooled = pool_heads(weights, num_kv_heads=6, method="random", seed=1)
    assert pooled.std().item() == pytest.approx(3, rel=0.05)
    assert torch.equal(pooled, pool_heads(weights, num_kv_heads=6, method="random", seed=1))
    assert not torch.equal(pooled, pool_heads(weights, num_kv_heads=6, method="random", seed=2))


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"num_kv_heads": 5}, "num_heads=12 must be a multiple of num_kv_heads=5"),
        ({"num_kv_heads": 0}, "num_heads=12 must be a multiple of num_kv_heads=0"),
        ({"num_kv_heads": 6, "method": "median"}, "method 'median' is not one of mean, first"),
    ],
)
def test_senseless_pooling_is_refused(asked: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        pool_heads(seeded((12, 2), 0), **asked)


def test_weights_without_heads_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="there are no key/value heads to pool among 1"):
        pool_state_dict({"fc.weight": torch.ones(2, 2)}, num_heads=2, num_kv_heads=1)
    weights = {"layers.0.self_attn.k_proj.weight": torch.ones(10, 2)}
    with pytest.raises(InvalidRequest, match="has 10 features, which are no 4 whole heads"):
        pool_state_dict(weights, num_heads=4, num_kv_heads=1)


@st.composite
def gpt2s(draw: st.DrawFn) -> tuple[Gpt2, int]:
    """A small GPT-2 in float64, and the key/value heads to pool it to."""
    kv_heads, group = draw(counts), draw(counts)
    shape = Shape(
        num_layers=2, num_heads=kv_heads * group, num_kv_heads=kv_heads * group,
        head_dim=draw(counts), vocabulary=7, max_tokens=8,
    )  # fmt: skip
    model = Gpt2(shape).double()
    with torch.no_grad():
        for index, parameter in enumerate(model.parameters()):
            parameter.copy_(0.5 * seeded(tuple(parameter.shape), 100 * draw(seeds) + index))
    return model, kv_heads


def logits(model: Any) -> Tensor:
    tokens = torch.tensor([[1, 5, 2, 6, 0, 3]])
    with torch.no_grad():
        answer: Tensor = getattr(out := model(tokens), "logits", out)
    return answer


def pooled_gpt2(model: Gpt2, kv_heads: int, method: Method = "mean") -> Gpt2:
    shape = model.shape.grouped(kv_heads)
    state = pool_state_dict(
        model.state_dict(), num_heads=shape.num_heads, num_kv_heads=kv_heads, method=method
    )
    return from_weights(state, shape)


@some
@given(drawn=gpt2s(), method=methods)
def test_grouped_and_repeated_forms_agree(drawn: tuple[Gpt2, int], method: Method) -> None:
    model, kv_heads = drawn
    heads = model.shape.num_heads
    grouped = pooled_gpt2(model, kv_heads, method)
    repeated = repeat_state_dict(grouped.state_dict(), num_heads=heads, num_kv_heads=kv_heads)
    multi_head = from_weights(repeated, model.shape)
    torch.testing.assert_close(logits(grouped), logits(multi_head), atol=1e-11, rtol=1e-11)


@some
@given(drawn=gpt2s())
def test_a_model_of_equal_heads_is_pooled_to_itself(drawn: tuple[Gpt2, int]) -> None:
    model, kv_heads = drawn
    heads = model.shape.num_heads
    state = repeat_state_dict(
        pooled_gpt2(model, kv_heads).state_dict(), num_heads=heads, num_kv_heads=kv_heads
    )
    equal = from_weights(state, model.shape)
    pooled = pooled_gpt2(equal, kv_heads)
    back = repeat_state_dict(pooled.state_dict(), num_heads=heads, num_kv_heads=kv_heads)
    assert all(torch.equal(back[name], weight) for name, weight in equal.state_dict().items())
    torch.testing.assert_close(logits(pooled), logits(equal), atol=1e-11, rtol=1e-11)


@some
@given(drawn=gpt2s())
def test_state_dict_round_trips(drawn: tuple[Gpt2, int]) -> None:
    model, kv_heads = drawn
    pooled = pooled_gpt2(model, kv_heads)
    again = from_weights(pooled.state_dict(), pooled.shape)
    assert torch.equal(logits(again), logits(pooled))
    full = pooled_gpt2(model, model.shape.num_heads)
    assert torch.equal(logits(full), logits(model)), "full heads are unchanged"
    untouched = {name for name in model.state_dict() if "c_attn" not in name}
    for name in untouched:
        assert torch.equal(pooled.state_dict()[name], model.state_dict()[name])


def test_full_heads_are_the_gpt2_of_transformers() -> None:
    transformers = pytest.importorskip("transformers", reason="needs the extra `transformers`")
    config = transformers.GPT2Config(
        n_layer=2, n_head=4, n_embd=12, vocab_size=7, n_positions=8, attn_pdrop=0.0,
        resid_pdrop=0.0, embd_pdrop=0.0,
    )  # fmt: skip
    theirs = transformers.GPT2LMHeadModel(config).double().eval()
    shape = Shape(num_layers=2, num_heads=4, num_kv_heads=4, head_dim=3, vocabulary=7, max_tokens=8)
    ours = from_weights(theirs.state_dict(), shape)
    torch.testing.assert_close(logits(ours), logits(theirs), atol=1e-12, rtol=1e-12)


@some
@given(kv_heads=counts, group=counts, bias=st.booleans(), seed=seeds, method=methods)
def test_llama_of_transformers_runs_the_pooled_weights(
    kv_heads: int, group: int, bias: bool, seed: int, method: Method
) -> None:
    transformers = pytest.importorskip("transformers", reason="needs the extra `transformers`")
    heads = kv_heads * group

    def llama(num_kv_heads: int) -> Any:
        config = transformers.LlamaConfig(
            num_hidden_layers=2, num_attention_heads=heads, num_key_value_heads=num_kv_heads,
            hidden_size=2 * heads, intermediate_size=4, vocab_size=7, attention_bias=bias,
            max_position_embeddings=8,
        )  # fmt: skip
        return transformers.LlamaForCausalLM(config).double().eval()

    model = llama(heads)
    state = {
        name: 0.5 * seeded(tuple(weight.shape), seed + index)
        for index, (name, weight) in enumerate(model.state_dict().items())
    }
    model.load_state_dict(state)
    pooled = pool_state_dict(state, num_heads=heads, num_kv_heads=kv_heads, method=method)
    grouped = llama(kv_heads)
    grouped.load_state_dict(pooled)
    repeated = repeat_state_dict(pooled, num_heads=heads, num_kv_heads=kv_heads)
    model.load_state_dict(repeated)
    torch.testing.assert_close(logits(grouped), logits(model), atol=1e-11, rtol=1e-11)
    again = pool_state_dict(repeated, num_heads=heads, num_kv_heads=kv_heads)
    assert all(torch.equal(again[name], weight) for name, weight in pooled.items())
