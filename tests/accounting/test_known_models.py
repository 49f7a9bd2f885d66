"""The shipped table reproduces the documented figures (the sources are listed in the docs)."""

from __future__ import annotations

import pytest

from equivalence.accounting import (
    KVSpec,
    kv_elements_per_token,
    model_names,
    named_spec,
    sequences_that_fit,
)
from equivalence.accounting.models import known_configs
from equivalence.errors import InvalidRequest

# name: bytes per token in 16 bit, and how many times smaller than multi-head attention
BYTES_PER_TOKEN = {
    "gpt2": (36_864, 1),
    "pythia-160m": (36_864, 1),
    "phi-3-mini": (393_216, 1),
    "tinyllama-1.1b": (22_528, 8),
    "llama-3.2-1b": (32_768, 4),
    "llama-3.2-3b": (114_688, 3),
    "mistral-7b-v0.3": (131_072, 4),
    "llama-3.1-8b": (131_072, 4),
    "gemma-2-2b": (106_496, 2),
    "qwen3-1.7b": (114_688, 2),
}


@pytest.mark.parametrize(("name", "figures"), BYTES_PER_TOKEN.items())
def test_bytes_per_token(name: str, figures: tuple[int, int]) -> None:
    spec = named_spec(name)
    assert (spec.bytes_per_token(), spec.saving) == figures


@pytest.mark.parametrize(
    ("name", "held"),
    [("gpt2", 9_437_184), ("tinyllama-1.1b", 5_767_168), ("llama-3.2-1b", 8_388_608)],
)
def test_bytes_of_256_tokens(name: str, held: int) -> None:
    assert named_spec(name).bytes(256) == held


def with_kv_heads(name: str, num_kv_heads: int) -> KVSpec:
    from equivalence.accounting import kv_spec_from_config

    return kv_spec_from_config({**known_configs()[name], "num_key_value_heads": num_kv_heads})


@pytest.mark.parametrize(
    ("num_kv_heads", "tokens", "fits"),
    [(8, 4096, 11), (8, 32768, 1), (24, 4096, 3), (24, 32768, 0)],
)
def test_llama_3_2_3b_on_12_gib(num_kv_heads: int, tokens: int, fits: int) -> None:
    spec = with_kv_heads("llama-3.2-3b", num_kv_heads)
    room = {"memory_bytes": 12 * 2**30, "weights_bytes": 6.4e9}
    assert sequences_that_fit(spec, tokens=tokens, **room) == fits


def test_gemma_2_2b_with_its_windows() -> None:
    spec = named_spec("gemma-2-2b")
    assert spec.bytes(32_768) == 59_904 * 32_768
    assert spec.bytes(4_096) == 106_496 * 4_096, "no window is full yet"
    assert spec.notes == ("13 of 26 layers keep a window of 4,096",)


def test_exaone_at_4096_tokens() -> None:
    spec = named_spec("exaone-4.0-1.2b")
    assert spec.bytes(4096) == 240 * 2**20
    assert spec.bytes_per_token() == 60 * 2**10
    (layer,) = set(spec.layers)
    assert [4096 * 2 * kept.count * kept.width for kept in layer.kept] == [4 * 2**20] * 2


def test_deepseek_v2_keeps_the_latent() -> None:
    spec = named_spec("deepseek-v2")
    assert spec.elements_per_token == 60 * 576
    assert spec.saving == pytest.approx(kv_elements_per_token(num_kv_heads=128, head_dim=128) / 576)


@pytest.mark.parametrize("name", model_names())
def test_every_known_model_keeps_something(name: str) -> None:
    spec = named_spec(name)
    assert spec.elements_per_token > 0
    assert spec.saving >= 1


@pytest.mark.parametrize(
    "written", ["meta-llama/Llama-3.2-3B", "Llama-3.2-3B-Instruct", "LLAMA-3.2-3B"]
)
def test_names_are_found_as_people_write_them(written: str) -> None:
    assert named_spec(written) == named_spec("llama-3.2-3b")


def test_an_unknown_name_is_refused_with_near_ones() -> None:
    with pytest.raises(InvalidRequest, match=r"llama-3\.2-4b is neither .* did you mean llama-3"):
        named_spec("llama-3.2-4b")
