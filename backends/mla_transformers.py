"""DeepSeek-V2's and DeepSeek-V3's attention of transformers, as kernels of the contract."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from equivalence.backends.mla_transformers_layer import run
from equivalence.declaration import mla as declare
from equivalence.latent.case import MlaCase
from equivalence.latent.inputs import OPERANDS


def needs_own_tokens(case: MlaCase) -> bool | str:
    """True, or why not: a query of a model stands on a token of its own."""
    if case.kv_len < case.q_len:
        return f"q_len={case.q_len} needs as many tokens, and kv_len={case.kv_len}"
    return True


def v2_supports(case: MlaCase) -> bool | str:
    """True, or why not: besides, the rotary channels are viewed as complex numbers in place."""
    for name in ("head_dim", "latent_dim"):
        if getattr(case, name) % 2:
            return f"{name}={getattr(case, name)} is odd, and what follows it cannot be complex"
    return needs_own_tokens(case)


def _named(*tensors: Tensor) -> dict[str, Tensor]:
    return dict(zip(OPERANDS, tensors, strict=True))


def _run(version: str, kernel: Any, tensors: dict[str, Tensor], scale: float | None) -> Tensor:
    """The output; ``kernel.cache_elements`` becomes what the module's cache then holds."""
    output, cache = run(version, tensors, scale)
    layer = cache.layers[0]
    kernel.cache_elements = layer.keys.numel() + layer.values.numel()
    return output


@declare(
    dtypes=("float32", "float16", "bfloat16"),  # it rotates in float32
    causal="lower_right",
    profile="eager",
    deterministic=True,
    supports=v2_supports,
)
def v2(
    query_content: Tensor,
    query_rotary: Tensor,
    latent: Tensor,
    key_rotary: Tensor,
    w_uk: Tensor,
    w_uv: Tensor,
    *,
    scale: float | None = None,
) -> Tensor:
    """DeepseekV2Attention, eager, with its cache -> ``[B, H, Sq, dv]``."""
    tensors = _named(query_content, query_rotary, latent, key_rotary, w_uk, w_uv)
    return _run("v2", v2, tensors, scale)


@declare(
    dtypes=("float64", "float32", "float16", "bfloat16"),
    causal="lower_right",
    profile="flash",
    deterministic=True,
    supports=needs_own_tokens,
)
def v3(
    query_content: Tensor,
    query_rotary: Tensor,
    latent: Tensor,
    key_rotary: Tensor,
    w_uk: Tensor,
    w_uv: Tensor,
    *,
    scale: float | None = None,
) -> Tensor:
    """DeepseekV3Attention, through SDPA, with its cache -> ``[B, H, Sq, dv]``."""
    tensors = _named(query_content, query_rotary, latent, key_rotary, w_uk, w_uv)
    return _run("v3", v3, tensors, scale)
