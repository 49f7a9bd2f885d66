"""How each kind of target is called: its tensors by position, its options by keyword."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

Options = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """What a call of one kind consists of.

    caller: the module whose ``call(target, inputs)`` makes it. tensors: what is given by
    position, in order; none for a factory, whose sizes are all keywords. options: each option of
    the contract, with the keywords under which a callable may take it. required: those that every
    call gives, so that a callable must take them. differentiable: whether ``call`` takes an
    upstream gradient too.
    """

    caller: str
    tensors: tuple[str, ...] = ()
    options: Options = field(default_factory=dict)
    required: tuple[str, ...] = ()
    differentiable: bool = False


_SCALE: Final[Options] = {"scale": ("scale", "softmax_scale", "sm_scale")}
_ATTENTION: Final[Options] = {
    "mask": ("attn_mask", "mask", "bias", "attn_bias"),
    "causal": ("is_causal", "causal"),
    **_SCALE,
    "window": ("window",),
    "window_size": ("window_size",),
    "softcap": ("softcap", "logits_soft_cap"),
    "sinks": ("sinks",),
    "alibi_slopes": ("alibi_slopes",),
    "kv_lengths": ("kv_lengths", "cache_seqlens", "seq_lens"),
    "enable_gqa": ("enable_gqa",),
    "head_order": ("head_order",),
}

CONTRACTS: Final[Mapping[str, Contract]] = {
    "attention": Contract(
        caller="equivalence.calling",
        tensors=("query", "key", "value"),
        options=_ATTENTION,
        differentiable=True,
    ),
    "varlen": Contract(
        caller="equivalence.packed.calling",
        tensors=("query", "key", "value"),
        options={
            **_ATTENTION,
            "cu_seqlens_q": ("cu_seqlens_q",),
            "cu_seqlens_k": ("cu_seqlens_k",),
            "max_seqlen_q": ("max_seqlen_q",),
            "max_seqlen_k": ("max_seqlen_k",),
        },
        required=("cu_seqlens_q", "cu_seqlens_k"),
    ),
    "paged": Contract(
        caller="equivalence.packed.calling",
        tensors=("query", "key_pages", "value_pages"),
        options={**_ATTENTION, "page_table": ("page_table", "block_table", "block_tables")},
        required=("page_table", "kv_lengths"),
    ),
    "mla": Contract(
        caller="equivalence.latent.calling",
        tensors=("query_content", "query_rotary", "latent", "key_rotary", "w_uk", "w_uv"),
        options=_SCALE,
    ),
    "rotary": Contract(
        caller="equivalence.rope.calling",
        tensors=("x", "positions"),
        options={
            "theta": ("theta", "rope_theta", "base"),
            "rotary_dim": ("rotary_dim",),
            "interleaved": ("interleaved",),
            "scaling": ("scaling", "rope_scaling", "rope_parameters"),
            "attention_factor": ("attention_factor",),
        },
    ),
    "kv_cache": Contract(caller="equivalence.caches.calling"),
    "converter": Contract(
        caller="equivalence.converters.calling",
        tensors=("module", "example_inputs"),
        options={
            "dynamic_shapes": ("dynamic_shapes",),
            "route": ("route",),
            "compression": ("compression",),
            "target": ("target", "minimum_deployment_target"),
        },
    ),
}
