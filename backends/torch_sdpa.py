"""Torch's scaled_dot_product_attention over equal heads, repeated beforehand."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from equivalence.backends.head_folding import HeadOrder
from equivalence.backends.known_callables import FLASH_LAUNDERS_NAN
from equivalence.backends.torch_repeat_kv import repeat_kv
from equivalence.backends.torch_sdpa_gqa import choice_supports
from equivalence.declaration import attention as declare


@declare(
    dtypes=("float64", "float32", "float16", "bfloat16"),
    causal="upper_left",
    head_order="grouped",
    layout="BHSD",
    profile="flash",
    masked_rows="zeros",
    hidden_nan="leaks",
    deterministic=True,
    gradients=True,
    grouped=True,
    known_faults=(FLASH_LAUNDERS_NAN,),
    supports=choice_supports,
)
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    head_order: HeadOrder = "grouped",
) -> Tensor:
    """SDPA, whichever kernel it chooses, on key and value copied for every query head.

    query ``[B, H, Sq, D]``, key ``[B, Hkv, Skv, D]``, value ``[B, Hkv, Skv, Dv]`` ->
    ``[B, H, Sq, Dv]``. Causal is upper left, as torch documents it.
    Raises Unsupported where H is no multiple of Hkv.
    """
    num_heads = query.shape[1]
    return functional.scaled_dot_product_attention(
        query,
        repeat_kv(key, num_heads, head_order),
        repeat_kv(value, num_heads, head_order),
        attn_mask=attn_mask,
        is_causal=is_causal,
        scale=scale,
    )
