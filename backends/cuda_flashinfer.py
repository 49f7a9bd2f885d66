"""FlashInfer on CUDA, by its documented layouts. Unverified: it has never met the library.

https://docs.flashinfer.ai, flashinfer.prefill: "NHD" tensors ``[S, H, D]`` of one request;
causality is lower right; window_left leaves out the query itself; the log-sum-exp is to base 2;
pages are named by compressed rows (indptr, indices, length of the last page).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

import torch
from torch import Tensor

from equivalence.backends.cuda_flash_attn import FACTS, supports
from equivalence.declaration import attention as declare
from equivalence.declaration import paged as declare_paged
from equivalence.errors import Unsupported

WORKSPACE: Final = 128 * 1024 * 1024


def _left(window: int | None) -> int:
    return -1 if window is None else window - 1


@declare(**FACTS, head_order="grouped", layout="BSHD", lse="base2", supports=supports)
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    window: int | None = None,
    softcap: float | None = None,
) -> tuple[Tensor, Tensor]:
    """``single_prefill_with_kv_cache`` for each batch row; a window needs causality beside it.

    query ``[B, Sq, H, D]``, key and value ``[B, Skv, Hkv, D]`` -> ``[B, Sq, H, D]`` and the
    log-sum-exp ``[B, H, Sq]``, base 2.
    """
    prefill = import_module("flashinfer").single_prefill_with_kv_cache
    rows = [
        prefill(
            *(x[row].contiguous() for x in (query, key, value)),
            causal=causal or window is not None,
            kv_layout="NHD",
            sm_scale=scale,
            window_left=_left(window),
            logits_soft_cap=softcap,
            return_lse=True,
        )
        for row in range(query.shape[0])
    ]
    outputs, lses = zip(*rows, strict=True)
    return torch.stack(outputs), torch.stack(lses).transpose(1, 2)


def supports_lengths(case: Any) -> bool | str:
    """True, or why not: a request without a page has no last page."""
    return "a sequence is empty" if 0 in case.kv_lengths else True


@declare_paged(**FACTS, supports=supports_lengths)
def paged(
    query: Tensor,
    key_pages: Tensor,
    value_pages: Tensor,
    *,
    page_table: Tensor,
    kv_lengths: Tensor,
    causal: bool = False,
    scale: float | None = None,
    window: int | None = None,
    softcap: float | None = None,
) -> Tensor:
    """``BatchPrefillWithPagedKVCacheWrapper``: pages ``[P, page_size, Hkv, D]`` ("NHD")."""
    batch_size, num_heads, q_len, head_dim = query.shape
    page_size, num_kv_heads = key_pages.shape[1:3]
    if bool((kv_lengths < 1).any()):
        raise Unsupported("a sequence is empty")
    used = (kv_lengths + page_size - 1) // page_size
    zero = torch.zeros(1, dtype=torch.int32, device=query.device)
    indices = [page_table[row, : int(count)] for row, count in enumerate(used)]
    workspace = torch.empty(WORKSPACE, dtype=torch.uint8, device=query.device)
    wrapper = import_module("flashinfer").BatchPrefillWithPagedKVCacheWrapper(workspace, "NHD")
    wrapper.plan(
        torch.arange(0, (batch_size + 1) * q_len, q_len, dtype=torch.int32, device=query.device),
        torch.cat([zero, used.cumsum(0).int()]),
        torch.cat(indices).int(),
        ((kv_lengths - 1) % page_size + 1).int(),
        num_heads,
        num_kv_heads,
        head_dim,
        page_size,
        causal=causal or window is not None,
        sm_scale=scale,
        window_left=_left(window),
        logits_soft_cap=softcap,
        q_data_type=query.dtype,
    )
    packed = query.transpose(1, 2).flatten(0, 1).contiguous()
    output: Tensor = wrapper.run(packed, (key_pages, value_pages))
    by_row: Tensor = output.unflatten(0, (batch_size, q_len))
    return by_row.transpose(1, 2)
