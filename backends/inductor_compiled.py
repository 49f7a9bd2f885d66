"""What torch.compile makes of attention: a formulation spelled out, and flex_attention.

Under no_grad, inductor may replace a spelled-out softmax by torch's own fused SDPA, so the first is
not independent of ``torch.sdpa``. Each new shape costs 10 to 30 seconds.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import torch
from torch import Tensor

from equivalence.backends.flex_module import flex as flex_attention
from equivalence.backends.head_folding import group_size_of
from equivalence.backends.torch_repeat_kv import attention as repeat_kv
from equivalence.case import AttentionCase
from equivalence.declaration import attention as declare

FACTS: Final[dict[str, Any]] = {
    "causal": "lower_right",
    "head_order": "grouped",
    "layout": "BHSD",
    "deterministic": True,
    "grouped": True,
    "costly": True,
}


@cache
def _compiled(which: str) -> Any:
    function = repeat_kv if which == "repeat_kv" else flex_attention.flex_attention
    return torch.compile(function, dynamic=False)


@declare(**FACTS, dtypes=("float32", "bfloat16"), profile="eager", masked_rows="zeros")
def spelled_out(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """``torch.repeat_kv`` compiled by inductor for each shape.

    query ``[B, H, Sq, D]``, key ``[B, Hkv, Skv, D]``, value ``[B, Hkv, Skv, Dv]`` ->
    ``[B, H, Sq, Dv]``.
    """
    with torch.no_grad():
        output: Tensor = _compiled("repeat_kv")(
            query, key, value, attn_mask=attn_mask, is_causal=is_causal, scale=scale
        )
    return output


def flex_supports(case: AttentionCase) -> bool | str:
    """True, or why not."""
    return True if case.kv_len else "an empty key has no block mask"


@declare(
    **FACTS,
    dtypes=("float32", "bfloat16"),
    profile="flash",
    masked_rows="zeros",
    supports=flex_supports,
)
def flex(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """flex_attention as compiled for the CPU, lower-right causality as its block mask."""
    batch_size, num_heads, q_len = query.shape[:3]
    kv_len = key.shape[2]
    group_size_of(num_heads, key.shape[1])
    block_mask = None
    if is_causal:

        def seen(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            return q + (kv_len - q_len) >= k

        block_mask = flex_attention.create_block_mask(
            seen, batch_size, num_heads, q_len, kv_len, device="cpu"
        )
    with torch.no_grad():
        output: Tensor = _compiled("flex")(
            query, key, value, block_mask=block_mask, scale=scale, enable_gqa=True
        )
    return output
