"""Which layers of a config keep every token, which a window of them, and which nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from equivalence.accounting.families import UNREAD, UNREAD_FAMILIES
from equivalence.accounting.fields import LONGEST, Fields

Plan = Literal["full", "window", "state", "shared", "cross"]
WINDOW: Final = ("sliding_window", "window_size", "attention_window_size")
CHUNK: Final = ("attention_chunk_size",)
LISTS: Final = ("layer_types", "layers_block_type")
LAYER_TYPES: Final[dict[str, Plan]] = {
    "full_attention": "full",
    "attention": "full",
    "global_attention": "full",
    "indexed_attention": "full",  # with an index key beside it
    "hybrid": "full",  # attention beside a state-space branch
    "sliding_attention": "window",
    "local_attention": "window",
    "hybrid_sliding": "window",
    "chunked_attention": "window",
    "linear_attention": "state",
    "mamba": "state",
    "mamba2": "state",
    "conv": "state",
    "recurrent": "state",
    "mlp": "state",
    "moe": "state",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerPlan:
    """What one layer keeps tokens of: ``window`` is None where it keeps them all.

    plan: "state" keeps a state of fixed size or none, "shared" reads another layer's cache,
    "cross" keeps the tokens of an encoder.
    """

    plan: Plan
    window: int | None = None


def layer_plans(config: Fields, num_layers: int) -> list[LayerPlan]:
    """One plan for each of ``num_layers`` layers.

    Reads layer_types (or layers_block_type), sliding_window with the pattern of its family
    (Gemma, Cohere, EXAONE, gpt-oss), use_sliding_window and max_window_layers (Qwen),
    attention_chunk_size (Llama 4), attention_types (GPT-Neo), attn_layer_period (Jamba),
    num_kv_shared_layers and cross_attention_layers.
    """
    if config.family in UNREAD_FAMILIES:
        raise config.refusal(f"what model_type={config.family} keeps is not known here")
    for name in UNREAD:
        if config.values.get(name):
            raise config.refusal(f"{name} changes what is kept in a way that is not known here")
    if "shared" in (config.several("indexer_types", str) or ()):
        raise config.refusal("indexer_types with shared index keys are not known here")
    types = _types(config, num_layers)
    if len(types) != num_layers:
        raise config.refusal(
            f"layer_types names {len(types)} layers and num_hidden_layers={num_layers}"
        )
    plans = [_plan(config, name) for name in types]
    return _shared(config, _crossed(config, plans))


def listed_layers(config: Fields) -> int | None:
    """How many layers the config lists one by one, or None where it lists none."""
    for name in LISTS:
        given = config.several(name, str)
        if given is not None:
            return len(given)
    return None


def _types(config: Fields, num_layers: int) -> list[str]:
    for name in LISTS:
        given = config.several(name, str)
        if given is not None:
            return _known(config, name, given)
    repeated = config.several("block_types", str)
    if repeated:  # RecurrentGemma
        types = [repeated[i % len(repeated)] for i in range(num_layers)]
        types = ["local_attention" if name == "attention" else name for name in types]
        return _known(config, "block_types", types)
    nested = config.values.get("attention_types")
    if nested is not None:
        return _neo_types(config, nested)
    return _counted_types(config, num_layers)


def _known(config: Fields, field: str, types: list[str]) -> list[str]:
    unknown = sorted(set(types) - set(LAYER_TYPES))
    if unknown:
        raise config.refusal(
            f"{field} names {unknown[0]!r}, which is not one of {', '.join(LAYER_TYPES)}"
        )
    return types


def _counted_types(config: Fields, num_layers: int) -> list[str]:
    """Types that follow from numbers: which layers, or every how many."""
    numbers = range(num_layers)
    if "attn_layer_indices" in config.values:
        chosen = set(config.several("attn_layer_indices", int) or ())
        return ["attention" if i in chosen else "mamba" for i in numbers]
    period = config.whole("attn_layer_period")
    if period is not None:
        offset = config.whole("attn_layer_offset", lowest=0) or 0
        return ["attention" if i % period == offset else "mamba" for i in numbers]
    every = config.whole("full_attention_interval")
    if every is not None:
        return ["linear_attention" if (i + 1) % every else "full_attention" for i in numbers]
    if config.get("attention_chunk_size") is not None:
        return _llama4_types(config, num_layers)
    return _sliding_types(config, num_layers)


def _sliding_types(config: Fields, num_layers: int) -> list[str]:
    numbers = range(num_layers)
    used = config.flag("use_sliding_window")
    if used is False or (config.get("sliding_window") is None and used is None):
        return ["full_attention"] * num_layers
    if config.get("sliding_window") is None:
        raise config.refusal("use_sliding_window is true and sliding_window is not given")
    pattern = config.get("sliding_window_pattern")
    if isinstance(pattern, str) and pattern:  # "LLLG", the last layer global
        letters = [pattern[i % len(pattern)] for i in numbers]
        if set(letters) - set("LG"):
            raise config.refusal(f"sliding_window_pattern={pattern!r} may hold only L and G")
        return [
            "full_attention" if letter == "G" or i == num_layers - 1 else "sliding_attention"
            for i, letter in zip(numbers, letters, strict=True)
        ]
    every = config.whole("sliding_window_pattern")
    if every is not None:
        return ["sliding_attention" if (i + 1) % every else "full_attention" for i in numbers]
    first = config.whole("max_window_layers", lowest=0) if used else None
    return [
        "full_attention" if first is not None and i < first else "sliding_attention"
        for i in numbers
    ]


def _llama4_types(config: Fields, num_layers: int) -> list[str]:
    """Chunks where positions are rotated, all tokens where they are not."""
    rotated = config.several("no_rope_layers", int)
    if not rotated:
        every = config.whole("no_rope_layer_interval") or 4
        rotated = [int((i + 1) % every != 0) for i in range(num_layers)]
    return ["chunked_attention" if one else "full_attention" for one in rotated]


def _neo_types(config: Fields, nested: object) -> list[str]:
    """GPT-Neo's ``[[["global", "local"], 12]]``."""
    types: list[str] = []
    try:
        for names, times in nested:  # type: ignore[attr-defined]
            types += [f"{name}_attention" for name in names] * times
    except (TypeError, ValueError):
        types = []
    if not types or set(types) - {"global_attention", "local_attention"}:
        raise config.refusal("attention_types must be like [[['global', 'local'], 12]]")
    return types


def _plan(config: Fields, name: str) -> LayerPlan:
    plan = LAYER_TYPES[name]
    if plan != "window":
        return LayerPlan(plan=plan)
    names = CHUNK if name == "chunked_attention" else WINDOW
    window = config.whole(*names, most=LONGEST)
    if window is None:
        raise config.refusal(f"{name} layers without {names[0]}")
    return LayerPlan(plan="window", window=window)


def _shared(config: Fields, plans: list[LayerPlan]) -> list[LayerPlan]:
    shared = config.whole("num_kv_shared_layers", lowest=0) or 0
    if shared >= len(plans):
        raise config.refusal(
            f"num_kv_shared_layers={shared} leaves none of {len(plans)} layers to share from"
        )
    own = len(plans) - shared
    return plans[:own] + [LayerPlan(plan="shared")] * shared


def _crossed(config: Fields, plans: list[LayerPlan]) -> list[LayerPlan]:
    crossed = config.several("cross_attention_layers", int) or []
    if any(not 0 <= i < len(plans) for i in crossed):
        raise config.refusal(
            f"cross_attention_layers={crossed} names a layer beyond num_hidden_layers={len(plans)}"
        )
    chosen = set(crossed)
    return [LayerPlan(plan="cross") if i in chosen else plan for i, plan in enumerate(plans)]
