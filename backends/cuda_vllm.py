"""vLLM's two kernels for pages on CUDA, by their documented layouts. Unverified: never met vLLM.

https://github.com/vllm-project/vllm: ``vllm._custom_ops.paged_attention_v1`` (one query a sequence;
key pages ``[P, Hkv, D / x, page_size, x]`` with x of 16 bytes, value pages ``[P, Hkv, D,
page_size]``; in releases up to 0.10), and ``unified_attention`` in Triton (packed queries, pages
``[P, page_size, Hkv, D]``, always causal, lower right).
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

import torch
from torch import Tensor

from equivalence.declaration import paged as declare
from equivalence.errors import Unsupported

FACTS: Final[dict[str, Any]] = {
    "dtypes": ("float16", "bfloat16"),
    "causal": "lower_right",
    "profile": "flash",
    "device": "cuda",
    "grouped": True,
}
# The newer of the two places first.
UNIFIED: Final = (
    "vllm.v1.attention.ops.triton_unified_attention",
    "vllm.attention.ops.triton_unified_attention",
)


def supports_one(case: Any) -> bool | str:
    """True, or why not."""
    if case.q_len != 1:
        return f"q_len={case.q_len}: it decodes one token"
    return True


@declare(**FACTS, supports=supports_one)
def paged_v1(
    query: Tensor,
    key_pages: Tensor,
    value_pages: Tensor,
    *,
    page_table: Tensor,
    kv_lengths: Tensor,
    scale: float | None = None,
) -> Tensor:
    """``paged_attention_v1``: query ``[B, H, 1, D]``, pages ``[P, page_size, Hkv, D]``."""
    if query.shape[2] != 1:
        raise Unsupported("it decodes one token")
    head_dim = query.shape[-1]
    step = 16 // query.element_size()
    if head_dim % step:
        raise Unsupported(f"head_dim={head_dim} is no multiple of {step}")
    keys = key_pages.permute(0, 2, 3, 1).unflatten(2, (-1, step)).transpose(3, 4).contiguous()
    values = value_pages.permute(0, 2, 3, 1).contiguous()
    one = torch.ones((), dtype=torch.float32, device=query.device)
    output = torch.empty_like(query[:, :, 0])
    import_module("vllm._custom_ops").paged_attention_v1(
        output,
        query[:, :, 0].contiguous(),
        keys,
        values,
        key_pages.shape[2],
        head_dim**-0.5 if scale is None else scale,
        page_table.int(),
        kv_lengths.int(),
        key_pages.shape[1],
        int(kv_lengths.max()),
        None,
        "auto",
        one,
        one,
    )
    return output[:, :, None]


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
