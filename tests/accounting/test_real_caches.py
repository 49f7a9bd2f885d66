"""The bytes that real caches of transformers hold equal the formula, exactly."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from equivalence.accounting import STORAGES, KVSpec, kv_spec_from_config, model_names
from equivalence.accounting.families import FALLBACKS, SIZES
from equivalence.accounting.models import known_configs

from .conftest import saved

EXAMPLES = 6
DTYPES = ("float32", "bfloat16")
WHOLE = {"vocab_size": 11, "max_position_embeddings": 64}
cases = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
WINDOWS = st.integers(2, 6)  # a window of 1 has a test of its own
counts = st.integers(1, 3)
even = st.integers(1, 4).map(lambda half: 2 * half)


@st.composite
def shapes(draw: st.DrawFn) -> dict[str, Any]:
    """Grouped heads whose width is not hidden_size / num_attention_heads."""
    num_kv_heads, group_size, share = draw(counts), draw(counts), draw(even)
    num_heads = num_kv_heads * group_size
    return {
        "num_hidden_layers": draw(st.integers(1, 4)),
        "num_attention_heads": num_heads,
        "num_key_value_heads": num_kv_heads,
        "head_dim": draw(even),
        "hidden_size": num_heads * share,
        "intermediate_size": 8,
        **WHOLE,
    }


@st.composite
def windowed(draw: st.DrawFn) -> dict[str, Any]:
    return {**draw(shapes()), "sliding_window": draw(st.none() | WINDOWS)}


@st.composite
def gemmas(draw: st.DrawFn) -> dict[str, Any]:
    return {**draw(shapes()), "sliding_window": draw(WINDOWS)}


@st.composite
def qwens(draw: st.DrawFn) -> dict[str, Any]:
    shape = draw(gemmas())
    del shape["head_dim"]
    return {
        **shape,
        "use_sliding_window": draw(st.booleans()),
        "max_window_layers": draw(st.integers(0, 4)),
    }


@st.composite
def gpt2s(draw: st.DrawFn) -> dict[str, Any]:
    heads = draw(counts)
    return {
        "n_layer": draw(counts), "n_head": heads, "n_embd": heads * draw(even),
        "vocab_size": 11, "n_positions": 64,
    }  # fmt: skip


@st.composite
def falcons(draw: st.DrawFn) -> dict[str, Any]:
    num_kv_heads, group_size = draw(counts), draw(counts)
    multi_query = draw(st.booleans())
    return {
        "num_hidden_layers": draw(counts),
        "num_attention_heads": num_kv_heads * group_size,
        # transformers cuts the fused projection by num_attention_heads unless multi_query
        "num_kv_heads": num_kv_heads if multi_query else num_kv_heads * group_size,
        "hidden_size": num_kv_heads * group_size * draw(even),
        "multi_query": multi_query,
        "new_decoder_architecture": False,
        **WHOLE,
    }


@st.composite
def deepseeks(draw: st.DrawFn) -> dict[str, Any]:
    """Even widths: the second version's view_as_complex refuses an odd offset."""
    heads = draw(counts)
    return {
        "num_hidden_layers": draw(counts), "num_attention_heads": heads,
        "num_key_value_heads": heads, "hidden_size": 4 * heads, "intermediate_size": 8,
        "moe_intermediate_size": 8, "first_k_dense_replace": 9, "q_lora_rank": None,
        "kv_lora_rank": draw(even), "qk_rope_head_dim": draw(even),
        "qk_nope_head_dim": draw(even), "v_head_dim": draw(st.integers(1, 6)),
        **WHOLE,
    }  # fmt: skip


FAMILIES = {
    "llama": shapes(),
    "mistral": windowed(),
    "gemma2": gemmas(),
    "gpt2": gpt2s(),
    "falcon": falcons(),
    "deepseek_v2": deepseeks(),
    "deepseek_v3": deepseeks(),
    "qwen2": qwens(),
    "qwen3": shapes(),
    "gpt_oss": gemmas().map(lambda shape: {**shape, "hidden_size": 8}),
}


def built(transformers: Any, family: str, fields: dict[str, Any], dtype: str) -> Any:
    config = transformers.AutoConfig.for_model(family, **fields)
    with torch.random.fork_rng():
        model = transformers.AutoModelForCausalLM.from_config(
            config, dtype=getattr(torch, dtype), attn_implementation="eager"
        )
    return model.eval()


def cache_after(model: Any, batch_size: int, steps: list[int], **cached: Any) -> Any:
    """The cache after ``steps``, the number of tokens that each forward pass appends."""
    cache = None
    with torch.no_grad():
        for tokens in steps:
            given_cache = {} if cache is None else {"cache": cache}
            answer = model(
                torch.zeros(batch_size, tokens, dtype=torch.long), use_cache=True,
                **{**cached, **given_cache},
            )  # fmt: skip
            cache = answer.cache
    return cache


def bytes_held(cache: Any) -> int:
    """The bytes of all keys, values and index keys."""
    held = 0
    for layer in cache.layers:
        for name in ("keys", "values", "indexer_keys"):
            tensor = getattr(layer, name, None)
            held += 0 if tensor is None else tensor.numel() * tensor.element_size()
    return held


def spec_of(config: Any) -> KVSpec:
    return kv_spec_from_config(saved(config))


@pytest.mark.parametrize("family", FAMILIES)
@cases
@given(case=st.data())
def test_real_cache_holds_the_formula(family: str, case: st.DataObject, transformers: Any) -> None:
    fields = case.draw(FAMILIES[family])
    dtype = case.draw(st.sampled_from(DTYPES))
    batch_size = case.draw(st.integers(1, 2))
    steps = case.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))
    model = built(transformers, family, fields, dtype)
    real = bytes_held(cache_after(model, batch_size, steps))
    counted = spec_of(model.config).bytes(
        sum(steps), storage=STORAGES[dtype], batch_size=batch_size, between=True
    )
    assert real == counted


@cases
@given(num_kv_heads=counts, group_size=st.integers(2, 3), tokens=st.integers(1, 9))
def test_transformers_keeps_a_new_falcon_once_for_each_query_head(
    num_kv_heads: int, group_size: int, tokens: int, transformers: Any
) -> None:
    """It caches the heads after they were repeated: group_size times what the model needs."""
    heads = num_kv_heads * group_size
    fields = {
        "num_hidden_layers": 2, "num_attention_heads": heads, "num_kv_heads": num_kv_heads,
        "hidden_size": 4 * heads, "new_decoder_architecture": True, **WHOLE,
    }  # fmt: skip
    model = built(transformers, "falcon", fields, "float32")
    real = bytes_held(cache_after(model, 1, [tokens]))
    needed = spec_of(model.config).bytes(tokens, storage=STORAGES["float32"])
    assert real == group_size * needed


@cases
@given(fields=shapes(), steps=st.lists(st.integers(1, 9), min_size=1, max_size=3))
def test_real_float8_cache_holds_its_scales(
    fields: dict[str, Any], steps: list[int], transformers: Any
) -> None:
    cache_utils = pytest.importorskip("transformers.cache_utils")
    if not hasattr(cache_utils, "Fp8QuantizedLayer"):
        pytest.skip("this version of transformers has no float8 cache")
    model = built(transformers, "llama", fields, "float32")
    layers = [cache_utils.Fp8QuantizedLayer() for _ in range(fields["num_hidden_layers"])]
    cache = cache_after(model, 1, steps, cache=cache_utils.Cache(layers=layers))
    real = 0
    for layer in cache.layers:
        for tensor, scale in (layer._quantized_keys, layer._quantized_values):
            real += tensor.numel() * tensor.element_size() + scale.element_size()
    assert real == spec_of(model.config).bytes(sum(steps), storage=STORAGES["float8"])


@cases
@given(fields=gemmas(), tokens=st.integers(1, 9))
def test_transformers_keeps_every_token_of_a_window_of_one(
    fields: dict[str, Any], tokens: int, transformers: Any
) -> None:
    """It cuts to the last window - 1 = 0 tokens by `[-0:]`, which is all; none are needed.

    The next step then fails, because the mask is made for the tokens that should be left.
    """
    model = built(transformers, "mistral", {**fields, "sliding_window": 1}, "float32")
    real = bytes_held(cache_after(model, 1, [tokens]))
    float32 = STORAGES["float32"]
    spec = spec_of(model.config)
    assert real == spec.bytes_per_token(float32) * tokens
    assert spec.bytes(tokens, storage=float32, between=True) == 0


def on_meta(transformers: Any, config: Any, make: Callable[[Any], Any]) -> int:
    """The bytes of the cache after 40 tokens, computed on shapes alone."""
    with torch.device("meta"), torch.no_grad():
        model = make(config).eval()
        return bytes_held(cache_after(model, 1, [40]))


# What shapes alone cannot run: a mixture routes by values (gpt_oss, deepseek, qwen3_moe and
# mixtral are run on values above), and T5 and Whisper need an encoder.
LAYERS_RUN = 2
PLAIN = [
    name
    for name in model_names()
    if known_configs()[name]["model_type"]
    in ("gpt2", "gpt_neox", "phi", "phi3", "llama", "mistral", "gemma", "gemma2", "gemma3_text",
        "qwen2", "qwen3", "exaone4")
]  # fmt: skip


@pytest.mark.parametrize("name", PLAIN)
def test_known_model_in_its_own_size(name: str, transformers: Any) -> None:
    """Real classes with the published sizes and few layers, on a device that holds no numbers."""
    fields = {**known_configs()[name]}
    family = fields.pop("model_type")
    depth = "n_layer" if family == "gpt2" else "num_hidden_layers"
    fields[depth] = LAYERS_RUN
    if family == "exaone4":  # this version of transformers divides by the pattern it lacks
        fields["layer_types"] = ["full_attention"] * LAYERS_RUN
    config = transformers.AutoConfig.for_model(family, **fields)
    real = on_meta(
        transformers, config,
        lambda c: transformers.AutoModelForCausalLM.from_config(
            c, dtype=torch.bfloat16, attn_implementation="eager"
        ),
    )  # fmt: skip
    assert real == kv_spec_from_config({**known_configs()[name], depth: LAYERS_RUN}).bytes(40)
    assert real == spec_of(config).bytes(40)


@pytest.mark.parametrize("family", sorted({*FALLBACKS, *SIZES}))
def test_defaults_of_a_family_are_those_of_transformers(family: str, transformers: Any) -> None:
    slides = {"use_sliding_window": True} if family.startswith("qwen") else {}
    config = transformers.AutoConfig.for_model(family, **slides)
    written = json.loads(config.to_json_string(use_diff=False))
    for name, value in {**FALLBACKS.get(family, {}), **SIZES.get(family, {})}.items():
        if name.endswith(("_pattern", "_interval")):
            continue  # the design of the family, which is compared layer by layer below
        if name in slides:
            continue  # set, because transformers hides the window without it
        assert written.get(name, getattr(config, name, None)) == value, name


@pytest.mark.parametrize("family", ["gemma2", "gemma3_text", "cohere2", "gpt_oss", "exaone4",
                                    "llama4_text", "qwen3_next", "mistral"])  # fmt: skip
def test_patterns_of_a_family_are_those_of_transformers(family: str, transformers: Any) -> None:
    config = transformers.AutoConfig.for_model(family)
    written = {k: v for k, v in saved(config).items() if k not in ("layer_types", "no_rope_layers")}
    windows = [getattr(layer, "sliding_window", None)
               for layer in transformers.DynamicCache(config=config).layers
               if hasattr(layer, "keys")]  # fmt: skip
    assert [layer.window for layer in kv_spec_from_config(written).layers] == windows
