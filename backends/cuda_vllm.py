"""vLLM's decoding kernel for pages on CUDA, by its documented layout. Unverified: never met vLLM.

https://github.com/vllm-project/vllm: ``vllm._custom_ops.paged_attention_v1``, one query a sequence;
key pages ``[P, Hkv, D / x, page_size, x]`` with x of 16 bytes, value pages ``[P, Hkv, D,
page_size]``; in releases up to 0.10.
"""

from __future__ import annotations

from importlib import import_module
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
