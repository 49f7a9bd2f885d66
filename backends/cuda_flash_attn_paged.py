"""flash-attn 2 for paged caches on CUDA, by its documented layouts. Unverified."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from torch import Tensor

from equivalence.backends.cuda_flash_attn import FACTS, options
from equivalence.declaration import paged as declare

PAGE: Final = 256


def supports_pages(case: Any) -> bool | str:
    """True, or why not."""
    if case.page_size % PAGE:
        return f"page_size={case.page_size} is no multiple of {PAGE}"
    return True


@declare(**FACTS, supports=supports_pages)
def paged(
    query: Tensor,
    key_pages: Tensor,
    value_pages: Tensor,
    *,
    page_table: Tensor,
    kv_lengths: Tensor,
    causal: bool = False,
    scale: float | None = None,
    window_size: tuple[int, int] | None = None,
    softcap: float | None = None,
) -> Tensor:
    """``flash_attn_with_kvcache``: pages ``[P, page_size, Hkv, D]``, a multiple of 256 keys each.

    query ``[B, H, Sq, D]`` and the result cross to its ``[B, Sq, H, D]`` and back.
    """
    output: Tensor = import_module("flash_attn").flash_attn_with_kvcache(
        query.transpose(1, 2).contiguous(),
        key_pages,
        value_pages,
        cache_seqlens=kv_lengths.int(),
        block_table=page_table.int(),
        **options(scale, causal, window_size=window_size, softcap=softcap),
    )
    return output.transpose(1, 2)
