"""FlashMLA on CUDA, by its documented layouts. Unverified: it has never met the library.

https://github.com/deepseek-ai/FlashMLA, flash_mla/flash_mla_interface.py: queries
``[B, Sq, H, 576]``, one cache ``[blocks, 64, 1, 576]`` of latents (512) and rotary keys (64),
values its first 512 channels; causality counts from each length, lower right.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional

from equivalence.declaration import mla as declare
from equivalence.errors import Unsupported

BLOCK: Final = 64
LATENT: Final = 512
ROTARY: Final = 64


def supports(case: Any) -> bool | str:
    """True, or why not: the kernels are compiled for DeepSeek-V3's sizes."""
    if (case.latent_dim, case.rope_dim) != (LATENT, ROTARY):
        return f"latent_dim={case.latent_dim}, rope_dim={case.rope_dim}: only 512 and 64"
    return True if case.kv_len else "there is no token"


@declare(
    dtypes=("float16", "bfloat16"),
    causal="lower_right",
    profile="eager",
    device="cuda",
    supports=supports,
)
def attention(
    query_content: Tensor,
    query_rotary: Tensor,
    latent: Tensor,
    key_rotary: Tensor,
    w_uk: Tensor,
    w_uv: Tensor,
    *,
    scale: float | None = None,
) -> Tensor:
    """``flash_mla_with_kvcache`` between the two absorbed projections -> ``[B, H, Sq, dv]``."""
    batch_size, kv_len, latent_dim = latent.shape
    if (latent_dim, key_rotary.shape[-1]) != (LATENT, ROTARY) or not kv_len:
        raise Unsupported("only a latent of 512 and rotary keys of 64, over one token or more")
    width = query_content.shape[-1] + query_rotary.shape[-1]
    query = torch.cat([query_content @ w_uk, query_rotary], dim=-1).transpose(1, 2)
    cache = torch.cat([latent, key_rotary], dim=-1)
    blocks = -(-kv_len // BLOCK)
    cache = functional.pad(cache, (0, 0, 0, blocks * BLOCK - kv_len))
    library = import_module("flash_mla")
    metadata, _ = library.get_mla_metadata()
    table = torch.arange(batch_size * blocks, dtype=torch.int32, device=latent.device)
    output, _ = library.flash_mla_with_kvcache(
        query.contiguous(),
        cache.reshape(batch_size * blocks, BLOCK, 1, LATENT + ROTARY),
        table.view(batch_size, blocks),
        torch.full((batch_size,), kv_len, dtype=torch.int32, device=latent.device),
        LATENT,
        metadata,
        None,
        softmax_scale=width**-0.5 if scale is None else scale,
        causal=True,
    )
    sums: Tensor = output.transpose(1, 2)
    return sums @ w_uv.transpose(-2, -1)
