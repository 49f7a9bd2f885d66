"""Configs as families write them, and the field that each refusal names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equivalence.accounting import kv_spec_from_config
from equivalence.errors import InvalidRequest

many = settings(deadline=None)
Config = dict[str, Any]
SMALL: Config = {"num_hidden_layers": 6, "num_attention_heads": 8, "hidden_size": 64}

# name: (config, elements per token, windows of the layers)
READ: dict[str, tuple[Config, int, list[int | None]]] = {
    "no key/value heads": (SMALL, 6 * 128, [None] * 6),
    "null key/value heads": ({**SMALL, "num_key_value_heads": None}, 6 * 128, [None] * 6),
    "grouped": ({**SMALL, "num_key_value_heads": 2}, 6 * 32, [None] * 6),
    "head_dim apart": ({**SMALL, "num_key_value_heads": 2, "head_dim": 32}, 6 * 128, [None] * 6),
    "gpt2": ({"model_type": "gpt2", "n_layer": 2, "n_head": 4, "n_embd": 32}, 128, [None] * 2),
    "bigcode": (
        {"model_type": "gpt_bigcode", "n_layer": 2, "n_head": 4, "n_embd": 32}, 32, [None] * 2,
    ),
    "falcon, multi-query": ({**SMALL, "model_type": "falcon", "num_kv_heads": 8}, 96, [None] * 6),
    "falcon, new": (
        {**SMALL, "model_type": "falcon", "num_kv_heads": 2, "new_decoder_architecture": True},
        6 * 32, [None] * 6,
    ),
    "falcon, multi-head": (
        {**SMALL, "model_type": "falcon", "multi_query": False}, 6 * 128, [None] * 6,
    ),
    "mpt": (
        {"model_type": "mpt", "n_layers": 2, "n_heads": 4, "d_model": 32, "attn_config": {}},
        2 * 64, [None] * 2,
    ),
    "dbrx": (
        {"n_layers": 2, "n_heads": 4, "d_model": 32, "attn_config": {"kv_n_heads": 2}},
        2 * 32, [None] * 2,
    ),
    "chatglm": (
        {
            "num_layers": 2, "num_attention_heads": 8, "kv_channels": 16, "hidden_size": 128,
            "multi_query_attention": True, "multi_query_group_num": 2,
        },
        2 * 64, [None] * 2,
    ),
    "deepseek": (
        {
            **SMALL, "model_type": "deepseek_v3", "kv_lora_rank": 24, "qk_rope_head_dim": 4,
            "qk_nope_head_dim": 8, "v_head_dim": 8,
        },
        6 * 28, [None] * 6,
    ),
    "deepseek with an index": (
        {
            **SMALL, "model_type": "deepseek_v32", "kv_lora_rank": 24, "qk_rope_head_dim": 4,
            "qk_nope_head_dim": 8, "v_head_dim": 8, "index_head_dim": 16,
        },
        6 * 44, [None] * 6,
    ),
    "layer_types": (
        {**SMALL, "sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"] * 3},
        6 * 128, [5, None] * 3,
    ),
    "a window everywhere": ({**SMALL, "sliding_window": 5}, 6 * 128, [5] * 6),
    "gemma2": (
        {**SMALL, "model_type": "gemma2", "head_dim": 8, "sliding_window": 5},
        6 * 128, [5, None] * 3,
    ),
    "gemma3": (
        {"text_config": {**SMALL, "model_type": "gemma3_text", "head_dim": 8, "sliding_window": 5}},
        6 * 64, [5] * 5 + [None],
    ),
    "gpt-oss": (
        {**SMALL, "model_type": "gpt_oss", "head_dim": 8, "sliding_window": 3},
        6 * 128, [3, None] * 3,
    ),
    "exaone4 by letters": (
        {**SMALL, "model_type": "exaone4", "sliding_window": 3, "sliding_window_pattern": "LLG"},
        6 * 128, [3, 3, None] * 2,
    ),
    "qwen2 without": ({**SMALL, "model_type": "qwen2", "sliding_window": 5}, 6 * 128, [None] * 6),
    "qwen2 with": (
        {
            **SMALL, "model_type": "qwen2", "use_sliding_window": True, "sliding_window": 5,
            "max_window_layers": 4,
        },
        6 * 128, [None] * 4 + [5] * 2,
    ),
    "llama4": (
        {**SMALL, "model_type": "llama4_text", "head_dim": 8, "attention_chunk_size": 7},
        6 * 128, [7, 7, 7, None, 7, 7],
    ),
    "gpt-neo": (
        {
            **SMALL, "attention_types": [[["global", "local"], 3]], "window_size": 9,
        },
        6 * 128, [None, 9] * 3,
    ),
    "jamba": (
        {**SMALL, "attn_layer_period": 3, "attn_layer_offset": 1}, 2 * 128, [None] * 2,
    ),
    "qwen3-next": (
        {**SMALL, "model_type": "qwen3_next", "head_dim": 8, "full_attention_interval": 3},
        2 * 128, [None] * 2,
    ),
    "shared layers": ({**SMALL, "num_kv_shared_layers": 2}, 4 * 128, [None] * 4),
    "one layer apart": (
        {**SMALL, "per_layer_config": {"05": {"head_dim": 16}}}, 5 * 128 + 256, [None] * 6,
    ),
    "wide global heads": (
        {
            **SMALL, "layer_types": ["sliding_attention", "full_attention"] * 3,
            "sliding_window": 5, "head_dim": 8, "global_head_dim": 16,
        },
        3 * 128 + 3 * 256, [5, None] * 3,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("config", "elements", "windows"), READ.values(), ids=READ.keys())
def test_reads(config: Config, elements: int, windows: list[int | None]) -> None:
    spec = kv_spec_from_config(config)
    assert spec.elements_per_token == elements
    assert [layer.window for layer in spec.layers] == windows


PAIRED: Config = {
    "model_type": "t5", "is_encoder_decoder": True, "num_layers": 9, "num_decoder_layers": 2,
    "num_heads": 4, "d_kv": 8, "d_model": 99,
}  # fmt: skip
CROSSED: dict[str, tuple[Config, int, int, int]] = {
    # config, self layers, cross layers, elements of 10 tokens beside 7 of the encoder
    "t5": (PAIRED, 2, 2, 2 * 64 * (10 + 7)),
    "bart": (
        {
            "model_type": "bart", "is_encoder_decoder": True, "num_hidden_layers": 9,
            "encoder_layers": 9, "decoder_layers": 2, "d_model": 32,
            "decoder_attention_heads": 4, "encoder_attention_heads": 8,
        },
        2, 2, 2 * 64 * (10 + 7),
    ),
    "gpt2 with cross-attention": (
        {"n_layer": 2, "n_head": 4, "n_embd": 32, "add_cross_attention": True},
        2, 2, 2 * 64 * (10 + 7),
    ),
    "mllama": (
        {"text_config": {**SMALL, "cross_attention_layers": [1, 4]}}, 4, 2, 128 * (4 * 10 + 2 * 7),
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "own", "crossed", "elements"), CROSSED.values(), ids=CROSSED.keys()
)
def test_reads_cross_attention(config: Config, own: int, crossed: int, elements: int) -> None:
    spec = kv_spec_from_config(config)
    assert (len(list(spec.of("self"))), len(list(spec.of("cross")))) == (own, crossed)
    assert spec.bytes(10, encoder_tokens=7) == 2 * elements
    assert spec.bytes(0, encoder_tokens=7) == 2 * crossed * 7 * (
        spec.layers[-1].elements_per_token
    ), "an encoder's tokens are kept from the first step on"


LATENT: Config = {**SMALL, "kv_lora_rank": 24, "qk_nope_head_dim": 8, "v_head_dim": 8}
REFUSED: dict[str, tuple[Config, str]] = {
    "nothing": ({}, "it has no num_attention_heads"),
    "no layers": ({"num_attention_heads": 4, "hidden_size": 8}, "it has no num_hidden_layers"),
    "no width": (
        {"num_attention_heads": 4, "num_hidden_layers": 1},
        "it has neither head_dim nor hidden_size",
    ),
    "no multiple": (
        {**SMALL, "num_key_value_heads": 3},
        "num_attention_heads=8 must be a multiple of num_key_value_heads=3",
    ),
    "no whole width": ({**SMALL, "hidden_size": 65}, "hidden_size=65 must be a multiple of"),
    "heads a word": (
        {**SMALL, "num_attention_heads": "8"},
        "num_attention_heads='8' must be a whole number",
    ),
    "heads true": ({**SMALL, "num_attention_heads": True}, "num_attention_heads=True must be"),
    "heads zero": ({**SMALL, "num_key_value_heads": 0}, "num_key_value_heads=0 must be"),
    "two names": (
        {**SMALL, "num_key_value_heads": 4, "num_kv_heads": 2},
        "num_key_value_heads=4 contradicts num_kv_heads=2",
    ),
    "two layer counts": ({**SMALL, "n_layer": 3}, "num_hidden_layers=6 contradicts n_layer=3"),
    "multi_query and heads": (
        {**SMALL, "multi_query": True, "num_key_value_heads": 4},
        "multi_query=True contradicts num_key_value_heads=4",
    ),
    "multi_query a word": ({**SMALL, "multi_query": "yes"}, "multi_query='yes' must be true or"),
    "chatglm": ({**SMALL, "multi_query_attention": True}, "without multi_query_group_num"),
    "latent alone": (LATENT, "kv_lora_rank=24 without qk_rope_head_dim"),
    "latent missing": ({**SMALL, "model_type": "deepseek_v2"}, "without kv_lora_rank"),
    "latent without values": (
        {**SMALL, "kv_lora_rank": 24, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8},
        "without v_head_dim",
    ),
    "latent widths": (
        {**LATENT, "qk_rope_head_dim": 4, "qk_head_dim": 13},
        "qk_head_dim=13 contradicts qk_nope_head_dim=8",
    ),
    "layer_types too short": (
        {**SMALL, "layer_types": ["full_attention"]},
        "layer_types names 1 layers and num_hidden_layers=6",
    ),
    "layer_types unknown": (
        {**SMALL, "layer_types": ["mystery"] * 6},
        "layer_types names 'mystery', which is not one of",
    ),
    "layer_types no list": ({**SMALL, "layer_types": "full"}, "layer_types must be a list of str"),
    "no window": (
        {**SMALL, "layer_types": ["sliding_attention"] * 6},
        "sliding_attention layers without sliding_window",
    ),
    "window used, not given": (
        {**SMALL, "use_sliding_window": True},
        "use_sliding_window is true and sliding_window is not given",
    ),
    "window zero": ({**SMALL, "sliding_window": 0}, "sliding_window=0 must be a whole number"),
    "pattern": (
        {**SMALL, "sliding_window": 4, "sliding_window_pattern": "LX"},
        "sliding_window_pattern='LX' may hold only L and G",
    ),
    "attention_types": ({**SMALL, "attention_types": [["global"]]}, "attention_types must be like"),
    "all shared": ({**SMALL, "num_kv_shared_layers": 6}, "num_kv_shared_layers=6 leaves none of 6"),
    "cross beyond": (
        {**SMALL, "cross_attention_layers": [6]},
        "cross_attention_layers=[6] names a layer beyond",
    ),
    "per layer": ({**SMALL, "per_layer_config": {"a": {}}}, "per_layer_config has a key 'a'"),
    "an encoder": ({**SMALL, "model_type": "bert"}, "model_type=bert is an encoder"),
    "a state": ({**SMALL, "model_type": "mamba2"}, "model_type=mamba2 keeps a state"),
    "no attention": ({**SMALL, "layer_types": ["mamba"] * 6}, "none of its layers keeps a token"),
    "not known": (
        {**SMALL, "linear_attn_config": {"kda_layers": [1]}},
        "linear_attn_config changes what is kept",
    ),
    "nested list": ({"text_config": [1]}, "text_config is a list, not an object"),
}


@pytest.mark.parametrize(("config", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_refuses_with_the_field(config: Config, why: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        kv_spec_from_config(config, origin="here")
    assert str(refusal.value).startswith("here: ")
    assert why in str(refusal.value)
    assert "\n" not in str(refusal.value)


words = st.text(max_size=3) | st.just("full_attention")
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 9) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=2),
    max_leaves=4,
)
FIELDS = sorted({field for config, *_ in (*READ.values(), *CROSSED.values()) for field in config})


@many
@given(
    base=st.sampled_from([{}, SMALL, LATENT, PAIRED]),
    changed=st.dictionaries(st.sampled_from(FIELDS), json_values, max_size=3),
)
def test_any_config_is_read_or_refused_in_one_line(base: Config, changed: Config) -> None:
    try:
        held = kv_spec_from_config({**base, **changed}).bytes(10)
    except InvalidRequest as refusal:
        lines = str(refusal).count("\n") + 1
    else:
        lines = int(held > 0)
    assert lines == 1


def test_reads_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    spec = kv_spec_from_config(tmp_path)
    assert spec.layers == kv_spec_from_config(tmp_path / "config.json").layers
    assert spec.layers == kv_spec_from_config(SMALL).layers


def test_defaults_of_a_family_are_said() -> None:
    nested = {"text_config": {"model_type": "gemma3_text", "num_hidden_layers": 34}}
    (_, note) = kv_spec_from_config({**nested, "hidden_size": 2560}).notes
    assert note.startswith("not in the config, so gemma3_text's default: ")
    for said in ("num_attention_heads=8", "num_key_value_heads=4", "head_dim=256"):
        assert said in note
