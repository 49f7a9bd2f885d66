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


def options(scale: float | None, causal: bool, **more: Any) -> dict[str, Any]:
    """The arguments that all of its functions take, by the names that they have there."""
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
    asked = options(
        scale,
        causal,
        window=window,
        window_size=window_size,
        softcap=softcap,
        alibi_slopes=alibi_slopes,
    )
    output: Tensor = import_module("flash_attn").flash_attn_func(query, key, value, **asked)
    return output
