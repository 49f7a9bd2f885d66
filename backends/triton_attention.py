"""Triton kernels for decoding: grouped heads fused, split over the keys, and absorbed latents.

Compiled on a GPU; in Triton's interpreter elsewhere, where each call takes a good part of a second.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from equivalence.backends.head_folding import group_size_of
from equivalence.backends.triton_interpreter import INTERPRETED
from equivalence.backends.triton_kernels import SPLITS, attend
from equivalence.declaration import attention as declare
from equivalence.declaration import mla as declare_mla
from equivalence.errors import Unsupported

BFLOAT16: Final = "the interpreter's tl.dot of bfloat16 is silently wrong (triton 3.9)"


def supports(case: Any) -> bool | str:
    """True, or why not."""
    if INTERPRETED and case.dtype == "bfloat16":
        return BFLOAT16
    return True if case.kv_len else "there is no key"


def _refuse(dtype: torch.dtype, kv_len: int) -> None:
    if INTERPRETED and dtype == torch.bfloat16:
        raise Unsupported(BFLOAT16)
    if not kv_len:
        raise Unsupported("there is no key")


FACTS: Final[dict[str, Any]] = {
    "dtypes": ("float32", "float16") if INTERPRETED else ("float32", "float16", "bfloat16"),
    "causal": "lower_right",
    "profile": "flash",
    "masked_rows": "zeros",
    "deterministic": True,
    "device": "cpu" if INTERPRETED else "cuda",
    "supports": supports,
    "costly": True,
}


def _attend(
    operands: tuple[Tensor, Tensor, Tensor], causal: bool, scale: float | None, splits: int
) -> tuple[Tensor, Tensor]:
    query, key, value = operands
    group_size_of(query.shape[1], key.shape[1])
    _refuse(query.dtype, key.shape[2])
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    return attend(query, key, value, factor, causal, splits)


@declare(**FACTS, head_order="grouped", layout="BHSD", grouped=True, lse="natural")
def decode(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    is_causal: bool = False,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """One program for each key/value head, all queries of its group as rows of one product.

    query ``[B, H, Sq, D]``, key ``[B, Hkv, Skv, D]``, value ``[B, Hkv, Skv, Dv]`` -> output
    ``[B, H, Sq, Dv]`` and log-sum-exp ``[B, H, Sq]``.
    """
    return _attend((query, key, value), is_causal, scale, 1)


@declare(**FACTS, head_order="grouped", layout="BHSD", grouped=True, lse="natural")
def split_kv(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    is_causal: bool = False,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """The same over slices of the keys, merged by their log-sum-exp in a second kernel."""
    return _attend((query, key, value), is_causal, scale, SPLITS)


@declare_mla(**{**FACTS, "profile": "eager"})
def absorbed(
    query_content: Tensor,
    query_rotary: Tensor,
    latent: Tensor,
    key_rotary: Tensor,
    w_uk: Tensor,
    w_uv: Tensor,
    *,
    scale: float | None = None,
) -> Tensor:
    """Absorbed latent attention: every head a row against the shared cache, whose values it is.

    Shapes as in ``equivalence.backends.mla_absorbed``; the absorption itself is torch's.
    """
    _refuse(latent.dtype, latent.shape[1])
    width = query_content.shape[-1] + query_rotary.shape[-1]
    query = torch.cat([query_content @ w_uk, query_rotary], dim=-1)
    cache = torch.cat([latent, key_rotary], dim=-1)[:, None]
    factor = width**-0.5 if scale is None else scale
    sums = attend(query, cache, latent[:, None], factor, True, SPLITS)[0]
    return sums @ w_uv.transpose(-2, -1)
