"""flash-attn 2 for packed tokens on CUDA, by its documented layouts. Unverified."""

from __future__ import annotations

from importlib import import_module

from torch import Tensor

from equivalence.backends.cuda_flash_attn import FACTS, options
from equivalence.declaration import varlen as declare


@declare(**FACTS)
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
        **options(scale, causal, window_size=window_size, softcap=softcap),
    )
    return output
