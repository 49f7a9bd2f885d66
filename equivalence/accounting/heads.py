"""The heads of a config: how many, how wide, and which of them the cache keeps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from equivalence.accounting.families import FALCONS, LATENTS
from equivalence.accounting.fields import Fields

HEAD_DIMS: Final = ("head_dim", "attention_head_dim", "kv_channels", "d_kv", "dim_head")


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """One layer's heads.

    head_dim and value_head_dim are those of a key and a value as attention reads them. latent is
    (latent_dim, rope_dim) where a latent is kept in their place; content_dim is then head_dim
    without the rotary part. indexer is the width of an index key kept beside them, or 0.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    value_head_dim: int
    content_dim: int
    latent: tuple[int, int] | None = None
    indexer: int = 0

    @property
    def group_size(self) -> int:
        """Query heads to a key/value head."""
        return self.num_heads // self.num_kv_heads


def heads_of(config: Fields) -> Heads:
    """The heads of a layer with full attention.

    num_attention_heads, num_key_value_heads (default: as many), head_dim (default: hidden_size /
    num_attention_heads), under the names that GPT-2, Falcon, MPT, ChatGLM, T5 and others give
    them, and DeepSeek's kv_lora_rank. Raises InvalidRequest, naming the field, for a config that
    contradicts itself.
    """
    decoder = ("decoder_attention_heads",) if config.values.get("decoder_layers") else ()
    heads = config.agreed(*decoder) if decoder else None
    if heads is None:
        heads = config.agreed(
            "num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"
        )
    if heads is None:
        raise config.refusal("it has no num_attention_heads, so it describes no attention")
    latent = _latent(config, heads)
    if latent is not None:
        return latent
    kv_heads = _kv_heads(config, heads)
    if heads % kv_heads:
        raise config.refusal(
            f"num_attention_heads={heads} must be a multiple of num_key_value_heads={kv_heads}"
        )
    head_dim = config.whole(*HEAD_DIMS)
    if head_dim is None:
        head_dim = _hidden_share(config, heads)
    value_head_dim = config.whole("v_head_dim", "value_head_dim") or head_dim
    return Heads(
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        value_head_dim=value_head_dim,
        content_dim=head_dim,
    )


def global_heads(config: Fields, heads: Heads) -> Heads:
    """The heads of layers with full attention where those differ from windowed ones (Gemma 4)."""
    head_dim = config.whole("global_head_dim")
    if head_dim is None:
        return heads
    own = config.whole("num_global_key_value_heads")
    kv_heads = own if own is not None and config.flag("attention_k_eq_v") else heads.num_kv_heads
    if heads.num_heads % kv_heads:
        raise config.refusal(
            f"num_attention_heads={heads.num_heads} must be a multiple of "
            f"num_global_key_value_heads={kv_heads}"
        )
    return replace(
        heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        value_head_dim=head_dim,
        content_dim=head_dim,
    )


def _kv_heads(config: Fields, heads: int) -> int:
    inner = config.part("attn_config")  # MPT, DBRX
    if inner is not None:
        own = inner.whole("kv_n_heads")
        return own if own is not None else heads
    if config.family in FALCONS:
        # num_kv_heads is saved in every case, and read only in these.
        own = config.agreed("num_kv_heads", "n_head_kv")
        if own is None:
            own = heads
        many = config.flag("new_decoder_architecture") or config.flag("multi_query") is False
        return own if many else 1
    own = config.agreed("num_key_value_heads", "num_kv_heads", "n_head_kv", "num_query_groups")
    if config.flag("multi_query_attention"):  # ChatGLM
        groups = config.whole("multi_query_group_num")
        if groups is None:
            raise config.refusal("multi_query_attention is true without multi_query_group_num")
        return groups
    if config.flag("multi_query"):
        if own not in (None, 1, heads):
            raise config.refusal(f"multi_query=True contradicts num_key_value_heads={own}")
        return 1
    return heads if own is None else own


def _hidden_share(config: Fields, heads: int) -> int:
    hidden = config.whole("hidden_size", "n_embd", "d_model", "n_embed")
    if hidden is None:
        raise config.refusal("it has neither head_dim nor hidden_size")
    if hidden % heads:
        raise config.refusal(
            f"hidden_size={hidden} must be a multiple of num_attention_heads={heads} "
            "where head_dim is not given"
        )
    return hidden // heads


def _latent(config: Fields, heads: int) -> Heads | None:
    """The heads of latent attention (DeepSeek-V2, section 2.1), which all devices keep whole."""
    latent_dim = config.whole("kv_lora_rank")
    if latent_dim is None:
        if config.family in LATENTS:
            raise config.refusal(f"model_type={config.family} without kv_lora_rank")
        return None
    rope_dim = config.whole("qk_rope_head_dim", lowest=0)
    if rope_dim is None:
        raise config.refusal(f"kv_lora_rank={latent_dim} without qk_rope_head_dim")
    content_dim = config.whole("qk_nope_head_dim")
    value_head_dim = config.whole("v_head_dim")
    if content_dim is None or value_head_dim is None:
        missing = "qk_nope_head_dim" if content_dim is None else "v_head_dim"
        raise config.refusal(f"kv_lora_rank={latent_dim} without {missing}")
    whole = config.whole("qk_head_dim")
    if whole is not None and whole != content_dim + rope_dim:
        raise config.refusal(
            f"qk_head_dim={whole} contradicts qk_nope_head_dim={content_dim} + "
            f"qk_rope_head_dim={rope_dim}"
        )
    return Heads(
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=content_dim + rope_dim,
        value_head_dim=value_head_dim,
        content_dim=content_dim,
        latent=(latent_dim, rope_dim),
        indexer=config.whole("index_head_dim") or 0,
    )
