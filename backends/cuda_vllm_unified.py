"""vLLM's Triton kernel for pages on CUDA, by its documented layout. Unverified: never met vLLM.

https://github.com/vllm-project/vllm: ``unified_attention`` takes packed queries and pages ``[P,
page_size, Hkv, D]``, and is always causal, lower right.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Final

import torch
from torch import Tensor

from equivalence.backends.cuda_vllm import FACTS
from equivalence.declaration import paged as declare

# The newer of the two places first.
UNIFIED: Final = (
    "vllm.v1.attention.ops.triton_unified_attention",
    "vllm.attention.ops.triton_unified_attention",
)


@declare(**FACTS)
def unified(
    query: Tensor,
    key_pages: Tensor,
    value_pages: Tensor,
    *,
    page_table: Tensor,
    kv_lengths: Tensor,
    scale: float | None = None,
    window: int | None = None,
    softcap: float | None = None,
) -> Tensor:
    """``unified_attention``: query ``[B, H, Sq, D]`` packed to ``[B Sq, H, D]``; always causal."""
    batch_size, _, q_len, head_dim = query.shape
    packed = query.transpose(1, 2).flatten(0, 1).contiguous()
    output = torch.empty_like(packed)
    starts = torch.arange(0, (batch_size + 1) * q_len, q_len, device=query.device)
    place = next((name for name in UNIFIED if _there(name)), UNIFIED[0])
    import_module(place).unified_attention(
        q=packed,
        k=key_pages,
        v=value_pages,
        out=output,
        cu_seqlens_q=starts.int(),
        max_seqlen_q=q_len,
        seqused_k=kv_lengths.int(),
        max_seqlen_k=int(kv_lengths.max()),
        softmax_scale=head_dim**-0.5 if scale is None else scale,
        causal=True,
        window_size=(-1 if window is None else window - 1, 0 if window is not None else -1),
        block_table=page_table.int(),
        softcap=softcap or 0.0,
        q_descale=None,
        k_descale=None,
        v_descale=None,
    )
    by_row: Tensor = output.unflatten(0, (batch_size, q_len))
    return by_row.transpose(1, 2)


def _there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
