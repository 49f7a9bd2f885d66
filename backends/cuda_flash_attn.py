"""flash-attn 2 on CUDA, by its documented layouts. Unverified: it has never met the library.

https://github.com/Dao-AILab/flash-attention, flash_attn/flash_attn_interface.py: tensors are
``[B, S, H, D]``; since 2.1 causality is lower right; (left, right) windows leave out the query
itself; softcap 0 is off; a row that sees no key is zero.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from torch import Tensor

from equivalence.declaration import attention as declare
from equivalence.declaration import paged as declare_paged
from equivalence.declaration import varlen as declare_varlen

PAGE: Final = 256
FACTS: Final[dict[str, Any]] = {
    "dtypes": ("float16", "bfloat16"),
    "causal": "lower_right",
    "profile": "flash",
    "masked_rows": "zeros",
    "grouped": True,
    "device": "cuda",
}


def supports(case: Any) -> bool | str:
    """True, or why not."""
    if case.head_dim > 256 or case.head_dim % 8:
        return f"head_dim={case.head_dim} is above 256 or no multiple of 8"
    if case.v_dim != case.head_dim:
        return f"value_head_dim={case.v_dim} differs from head_dim={case.head_dim}"
    return True if case.kv_len else "there is no key"


def supports_pages(case: Any) -> bool | str:
    """True, or why not."""
    if case.page_size % PAGE:
        return f"page_size={case.page_size} is no multiple of {PAGE}"
    return True


def _options(scale: float | None, causal: bool, **more: Any) -> dict[str, Any]:
    window, window_size = more.pop("window", None), more.pop("window_size", None)
    sides = (window - 1, 0) if window is not None else window_size or (-1, -1)
    softcap = more.pop("softcap", None) or 0.0
    return {
        "softmax_scale": scale,
        "causal": causal,
        "window_size": sides,
        "softcap": softcap,
        **more,
    }


@declare(**FACTS, head_order="grouped", layout="BSHD", gradients=True, supports=supports)
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    window: int | None = None,
    window_size: tuple[int, int] | None = None,
    softcap: float | None = None,
    alibi_slopes: Tensor | None = None,
) -> Tensor:
    """``flash_attn_func``: query ``[B, Sq, H, D]``, key and value ``[B, Skv, Hkv, D]``."""
    options = _options(
        scale,
        causal,
        window=window,
        window_size=window_size,
        softcap=softcap,
        alibi_slopes=alibi_slopes,
    )
    output: Tensor = import_module("flash_attn").flash_attn_func(query, key, value, **options)
    return output


@declare_varlen(**FACTS)
def varlen(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    causal: bool = False,
    scale: float | None = None,
    window_size: tuple[int, int] | None = None,
    softcap: float | None = None,
) -> Tensor:
    """``flash_attn_varlen_func``: query ``[Tq, H, D]``, key and value ``[Tk, Hkv, D]``."""
    output: Tensor = import_module("flash_attn").flash_attn_varlen_func(
        query,
        key,
        value,
        cu_seqlens_q.int(),
        cu_seqlens_k.int(),
        int(max_seqlen_q),
        int(max_seqlen_k),
        **_options(scale, causal, window_size=window_size, softcap=softcap),
    )
    return output


@declare_paged(**FACTS, supports=supports_pages)
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
        **_options(scale, causal, window_size=window_size, softcap=softcap),
    )
    return output.transpose(1, 2)
