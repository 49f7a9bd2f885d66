"""SDPA with enable_gqa, by torch's composite kernel and no other."""

from __future__ import annotations

from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from equivalence.backends.torch_sdpa_gqa import DTYPES, attention
from equivalence.declaration import attention as declare


@declare(
    dtypes=DTYPES,
    causal="upper_left",
    head_order="grouped",
    layout="BHSD",
    profile="f32",
    masked_rows="zeros",
    hidden_nan="leaks",
    deterministic=True,
    gradients=True,
    grouped=True,
)
def math(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """SDPA's composite kernel and no other: it copies key and value, and computes in float32.

    query ``[B, H, Sq, D]``, key ``[B, Hkv, Skv, D]``, value ``[B, Hkv, Skv, Dv]`` ->
    ``[B, H, Sq, Dv]``. Raises Unsupported where H is no multiple of Hkv.
    """
    with sdpa_kernel(SDPBackend.MATH):
        return attention(query, key, value, attn_mask=attn_mask, is_causal=is_causal, scale=scale)
