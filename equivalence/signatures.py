"""Which options of the contract a callable takes, and under which keyword."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

from equivalence.declaration import Declaration

Aliases = dict[str, tuple[str, ...]]

ALIASES: Final[Aliases] = {
    "mask": ("attn_mask", "mask", "bias", "attn_bias"),
    "causal": ("is_causal", "causal"),
    "scale": ("scale", "softmax_scale", "sm_scale"),
    "window": ("window",),
    "window_size": ("window_size",),
    "softcap": ("softcap", "logits_soft_cap"),
    "sinks": ("sinks",),
    "alibi_slopes": ("alibi_slopes",),
    "kv_lengths": ("kv_lengths", "cache_seqlens", "seq_lens"),
    "cu_seqlens_q": ("cu_seqlens_q",),
    "cu_seqlens_k": ("cu_seqlens_k",),
    "max_seqlen_q": ("max_seqlen_q",),
    "max_seqlen_k": ("max_seqlen_k",),
    "page_table": ("page_table", "block_table", "block_tables"),
    "enable_gqa": ("enable_gqa",),
    "head_order": ("head_order",),
}
ALIASES_OF: Final[dict[str, Aliases]] = {
    "converter": {
        "dynamic_shapes": ("dynamic_shapes",),
        "route": ("route",),
        "target": ("target", "minimum_deployment_target"),
    },
    "mla": {"scale": ALIASES["scale"]},
    "rotary": {
        "theta": ("theta", "rope_theta", "base"),
        "rotary_dim": ("rotary_dim",),
        "interleaved": ("interleaved",),
        "scaling": ("scaling", "rope_scaling", "rope_parameters"),
        "attention_factor": ("attention_factor",),
    },
}
# How many tensors stand before the options, where it is not three.
TENSORS: Final = {"converter": 2, "mla": 6, "rotary": 2}

POSITIONAL: Final = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)


def options_taken(function: Callable[..., Any], declaration: Declaration) -> dict[str, str]:
    """Contract option -> keyword, read from the signature and the declaration.

    A builtin or ``*args`` callable has no readable signature: it takes what it declares.
    """
    declared = declaration.options or ()
    aliases = ALIASES_OF.get(declaration.kind, ALIASES)
    if isinstance(declared, dict):
        taken = dict(declared)
    else:
        taken = {_contract_name(name, aliases): name for name in declared}
    try:
        parameters = inspect.signature(function).parameters
    except (ValueError, TypeError):
        return taken
    positional = [name for name, p in parameters.items() if p.kind in POSITIONAL]
    tensors = set(positional[: TENSORS.get(declaration.kind, 3)])
    for option, keywords in aliases.items():
        for keyword in keywords:
            parameter = parameters.get(keyword)
            if (
                option not in taken
                and parameter is not None
                and keyword not in tensors
                and parameter.kind is not inspect.Parameter.POSITIONAL_ONLY
            ):
                taken[option] = keyword
    return taken


def _contract_name(keyword: str, aliases: Aliases) -> str:
    for option, keywords in aliases.items():
        if keyword == option or keyword in keywords:
            return option
    return keyword
