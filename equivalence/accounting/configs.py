"""From a Hugging Face config to what the model keeps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from equivalence.accounting.families import ATTENTIONS_PER_LAYER, ENCODERS, STATES
from equivalence.accounting.fields import LONGEST, Fields, fields_of
from equivalence.accounting.heads import Heads, global_heads, heads_of
from equivalence.accounting.spec import CROSS, SELF, CacheLayer, Kept, KVSpec
from equivalence.accounting.windows import LayerPlan, layer_plans, listed_layers

DECODER_LAYERS: Final = ("num_decoder_layers", "decoder_layers")
LAYERS: Final = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
CONTEXT: Final = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "max_target_positions",
)


def kv_spec_from_config(
    config: Mapping[str, Any] | str | Path, *, name: str = "", origin: str = ""
) -> KVSpec:
    """What the model of this config keeps for a token, layer by layer.

    ``config`` is the object of a ``config.json``, its path, or the folder that holds it. Fields
    that published configs leave out are taken as their family's defaults, and the notes say so.
    Raises InvalidRequest, one line that names the field, for a config that is not understood,
    contradicts itself, or describes a model that keeps nothing.
    """
    fields = fields_of(config, origin=origin)
    if fields.family in ENCODERS and fields.flag("is_decoder") is not True:
        raise fields.refusal(f"model_type={fields.family} is an encoder, which keeps no tokens")
    if fields.family in STATES:
        raise fields.refusal(f"model_type={fields.family} keeps a state and no tokens")
    heads = heads_of(fields)
    paired = fields.flag("is_encoder_decoder") is True
    num_layers = _num_layers(fields, paired)
    plans = layer_plans(fields, num_layers)
    layers = [_layer(_heads_at(fields, i, plan), plan) for i, plan in enumerate(plans)]
    crossed = paired or fields.flag("add_cross_attention") is True
    if crossed:
        layers += [_layer(heads, LayerPlan(plan="cross"))] * num_layers
    kept = tuple(layer for layer in layers if layer is not None)
    if not kept:
        raise fields.refusal("none of its layers keeps a token")
    encoder_tokens = (fields.whole("max_source_positions", most=LONGEST) or 0) if paired else 0
    return KVSpec(
        name=name or fields.origin,
        family=fields.family,
        num_heads=heads.num_heads,
        num_layers=num_layers,
        layers=kept,
        max_tokens=fields.whole(*CONTEXT, most=LONGEST),
        encoder_tokens=encoder_tokens,
        dtype=_dtype(fields),
        notes=tuple(_notes(fields, plans, kept, encoder_tokens)),
    )


def _num_layers(fields: Fields, paired: bool) -> int:
    num_layers = fields.whole(*DECODER_LAYERS) if paired else None
    if num_layers is None and fields.family in ATTENTIONS_PER_LAYER:
        num_layers = fields.whole("num_layers")
    if num_layers is None:
        num_layers = fields.agreed(*LAYERS) or fields.whole(*DECODER_LAYERS)
    if num_layers is None:
        num_layers = listed_layers(fields)
    if num_layers is None:
        raise fields.refusal("it has no num_hidden_layers")
    return num_layers * ATTENTIONS_PER_LAYER.get(fields.family, 1)


def _heads_at(fields: Fields, index: int, plan: LayerPlan) -> Heads:
    own = fields.layer(index)
    heads = heads_of(own)
    return global_heads(own, heads) if plan.plan == "full" else heads


def _layer(heads: Heads, plan: LayerPlan) -> CacheLayer | None:
    """The cache of one layer, or None where it keeps no tokens."""
    if plan.plan in ("state", "shared"):
        return None
    if heads.latent is not None:
        latent_dim, rope_dim = heads.latent
        kept: tuple[Kept, ...] = (
            Kept(name="latent", count=1, width=latent_dim, split=False),
            Kept(name="rotary key", count=1, width=rope_dim, split=False),
        )
        if heads.indexer and plan.window is None:
            kept += (Kept(name="index key", count=1, width=heads.indexer, split=False),)
    else:
        kept = (
            Kept(name="key", count=heads.num_kv_heads, width=heads.head_dim),
            Kept(name="value", count=heads.num_kv_heads, width=heads.value_head_dim),
        )
    return CacheLayer(
        kept=kept,
        window=plan.window,
        attends=CROSS if plan.plan == "cross" else SELF,
        num_heads=heads.num_heads,
        mha_elements=heads.num_heads * (heads.content_dim + heads.value_head_dim),
    )


def _dtype(fields: Fields) -> str | None:
    given = fields.values.get("dtype") or fields.values.get("torch_dtype")
    return given.removeprefix("torch.") if isinstance(given, str) else None


def _notes(
    fields: Fields, plans: list[LayerPlan], kept: tuple[CacheLayer, ...], encoder_tokens: int
) -> list[str]:
    notes = []
    total = len(plans)
    windows = [plan.window for plan in plans if plan.window is not None]
    for window in dict.fromkeys(windows):
        notes.append(f"{windows.count(window)} of {total} layers keep a window of {window:,}")
    states = sum(plan.plan == "state" for plan in plans)
    if states:
        notes.append(
            f"{states} of {total} layers keep no tokens; a state of fixed size is not counted"
        )
    shared = sum(plan.plan == "shared" for plan in plans)
    if shared:
        notes.append(f"{shared} of {total} layers read the cache of an earlier one")
    crossed = sum(layer.attends == CROSS for layer in kept)
    if crossed:
        fixed = f" ({encoder_tokens:,})" if encoder_tokens else ""
        notes.append(f"{crossed} cross-attention layers keep the tokens of an encoder{fixed}")
    assumed = [f"{name}={value}" for name, value in fields.assumed.items() if _is_size(name, value)]
    if assumed:
        notes.append(f"not in the config, so {fields.family}'s default: {', '.join(assumed)}")
    return notes


def _is_size(name: str, value: object) -> bool:
    """Whether a default is a size; a pattern is the family's design and in no config."""
    return value is not False and not name.endswith(("_pattern", "_interval"))
