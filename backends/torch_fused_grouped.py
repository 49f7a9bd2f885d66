"""Q-fold into SDPA: the fused kernel sees equal heads, and key and value are read once each."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from equivalence.backends.head_folding import HeadOrder, fold_of
from equivalence.backends.known_callables import FLASH_LAUNDERS_NAN
from equivalence.backends.torch_masking import hidden_keys, put_back, taken
from equivalence.declaration import attention as declare


@declare(
    dtypes=("float64", "float32", "float16", "bfloat16"),
    causal="lower_right",
    head_order="grouped",
    layout="BHSD",
    profile="flash",
    masked_rows="zeros",
    hidden_nan="leaks",
    deterministic=True,
    gradients=True,
    mask_and_causal=True,
    grouped=True,
    known_faults=(FLASH_LAUNDERS_NAN,),
)
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    window: int | None = None,
    window_size: tuple[int, int] | None = None,
    kv_lengths: Tensor | None = None,
    head_order: HeadOrder = "grouped",
) -> Tensor:
    """SDPA over ``[B, Hkv, G * Sq, D]``; every mask becomes an explicit one on the folded rows.

    query ``[B, H, Sq, D]``, key ``[B, Hkv, Skv, D]``, value ``[B, Hkv, Skv, Dv]`` ->
    ``[B, H, Sq, Dv]``. Raises Unsupported where H is no multiple of Hkv.
    """
    batch_size, num_heads, q_len, head_dim = query.shape
    num_kv_heads, kv_len = key.shape[1:3]
    fold = fold_of(head_order, num_heads, num_kv_heads)
    slots, rows = num_kv_heads * fold.group_size, fold.group_size * q_len
    sorted_query = query if fold.take is None else query[:, fold.take]
    mask = taken(attn_mask, fold, 1)
    hidden = hidden_keys(
        q_len,
        kv_len,
        is_causal=is_causal,
        window=window,
        window_size=window_size,
        kv_lengths=kv_lengths,
        device=query.device,
    )
    if hidden is not None:
        if mask is None:
            mask = ~hidden
        elif mask.dtype == torch.bool:
            mask = mask & ~hidden
        else:
            mask = mask.expand(-1, -1, q_len, -1).masked_fill(hidden, -torch.inf)
    if mask is not None and mask.shape[1:3] != (1, 1):
        # One row for each folded query; a mask that is the same for all rows stays small.
        wide = mask.expand(mask.shape[0], slots, q_len, kv_len)
        mask = wide.reshape(mask.shape[0], num_kv_heads, rows, kv_len)
    output = functional.scaled_dot_product_attention(
        sorted_query.reshape(batch_size, num_kv_heads, rows, head_dim),
        key,
        value,
        attn_mask=mask,
        scale=scale,
    )
    return put_back(output.reshape(batch_size, slots, q_len, value.shape[-1]), fold)
