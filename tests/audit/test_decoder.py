"""A whole decode step: what it computes, and what a state or a repeated head adds to its graph."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from equivalence.audit.building import arguments_of, example_of, module_of
from equivalence.audit.decoders import THETA, WIDTH, Decoder, decoder_numbers
from equivalence.audit.recipes import Recipe
from equivalence.cli import run
from equivalence.errors import InvalidRequest

RECIPE = Recipe.of_model("exaone-4.0-1.2b", layers=2, context=12, part="decoder", dtype="float32")


def stepped(recipe: Recipe) -> torch.Tensor:
    """The logits of the step, of a cache that is kept either way."""
    numbers, module = decoder_numbers(recipe), module_of(recipe).float()
    for name in getattr(module, "states", ()):
        module.get_buffer(name).copy_(numbers[name])
        module.get_buffer(name)[:, :, -1] = 0.0  # written by the step
    given = [numbers[name] for name in arguments_of(recipe)]
    with torch.no_grad():
        made: torch.Tensor = module(*(x.float() if x.is_floating_point() else x for x in given))[0]
    return made


@pytest.mark.parametrize("formulation", ["repeat_kv", "q_fold_decode", "sdpa_gqa"])
def test_both_caches_give_the_same_logits(formulation: str) -> None:
    recipe = RECIPE.but(formulation=formulation)
    expected = stepped(RECIPE)
    for cache in ("inputs", "state"):
        torch.testing.assert_close(stepped(recipe.but(cache=cache)), expected)


@pytest.mark.slow
def test_it_computes_what_transformers_computes() -> None:
    """With the same weights, the past read into a cache of theirs."""
    transformers = pytest.importorskip("transformers")
    config = transformers.Exaone4Config(
        vocab_size=WIDTH, hidden_size=WIDTH, intermediate_size=WIDTH, num_hidden_layers=2,
        num_attention_heads=32, num_key_value_heads=8, head_dim=64, sliding_window=None,
        layer_types=["full_attention"] * 2, max_position_embeddings=64,
        rope_parameters={"rope_theta": THETA, "rope_type": "default"},
    )  # fmt: skip
    theirs = transformers.Exaone4ForCausalLM(config).eval()
    own = module_of(RECIPE)
    assert isinstance(own, Decoder)
    theirs.load_state_dict({_their_name(name): x for name, x in own.state_dict().items()})
    numbers = decoder_numbers(RECIPE)
    past = transformers.DynamicCache()
    for layer in range(2):
        pair = (numbers[f"{what}_{layer}"].float() for what in ("key", "value"))
        past.update(*pair, layer)
    with torch.no_grad():
        made = theirs(numbers["token"].long(), cache=past, use_cache=True).logits
    torch.testing.assert_close(stepped(RECIPE), made, rtol=1e-4, atol=1e-5)


def _their_name(name: str) -> str:
    if name.startswith("lm_head"):
        return name
    last = name.split(".")[-2]
    inside = {"gate_proj": "mlp.", "up_proj": "mlp.", "down_proj": "mlp."}
    attention = "self_attn." if last.endswith(("_proj", "q_norm", "k_norm")) else ""
    return "model." + name.replace(last, inside.get(last, attention) + last)


@pytest.mark.slow
def test_a_state_costs_operations_and_repeated_heads_do(capsys: Any) -> None:
    arguments = ["audit", "exaone-4.0-1.2b", "--part", "decoder", "--layers", "1", "--context", "8"]
    for cache in ("state", "inputs"):
        arguments += ["--cache", cache]
    assert run([*arguments, "--outputs", "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    state, inputs = (graph["operations"] for graph in found["graphs"])
    assert [g["repeated_heads"]["count"] for g in found["graphs"]] == [2, 2]
    assert [g["states"]["writes"] for g in found["graphs"]] == [2, 0]
    for kind in ("read_state", "slice_update", "coreml_update_state"):  # of each of two caches
        assert state["histogram"][kind] == 2
        assert kind not in inputs["histogram"]
    assert state["total"] > inputs["total"]
    assert state["with_constants"] - state["total"] > inputs["with_constants"] - inputs["total"]
    assert all(one["furthest"]["double"] <= 1e-12 for one in found["outputs"])


def test_names_of_arguments_are_those_of_the_example() -> None:
    for cache in ("inputs", "state"):
        recipe = RECIPE.but(cache=cache)
        assert (
            len(arguments_of(recipe)) == len(example_of(recipe)) == (3 if cache == "state" else 7)
        )


def test_what_no_decoder_is_written_for_is_refused() -> None:
    for wrong in (Recipe.of_model("llama-3.2-1b", layers=1), RECIPE.but(q_len=2)):
        with pytest.raises(InvalidRequest, match="--part decoder is one decode step of exaone"):
            module_of(wrong.but(part="decoder"))
    with pytest.raises(InvalidRequest, match="part='half' is not one of attention, decoder"):
        RECIPE.but(part="half")
