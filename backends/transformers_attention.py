"""Transformers' attention registry: eager, SDPA and flex, through a real layer with its cache."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from equivalence.backends.flex_module import uncompiled
from equivalence.backends.known_callables import FLASH_LAUNDERS_NAN
from equivalence.backends.transformers_faults import EAGER, FLEX
from equivalence.backends.transformers_layer import attend, supports
from equivalence.declaration import attention as declare

DTYPES = ("float64", "float32", "float16", "bfloat16")


def _facts(**facts: Any) -> dict[str, Any]:
    return {
        "dtypes": DTYPES,
        "causal": "lower_right",
        "head_order": "grouped",
        "layout": "BHSD",
        "deterministic": True,
        "grouped": True,
        "hidden_nan": "leaks",
        "supports": supports,
        **facts,
    }


@declare(**_facts(profile="single", masked_rows="uniform_or_nan", known_faults=EAGER))
def eager(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """``attn_implementation="eager"``; True in a bool mask becomes 0, False the lowest number."""
    return attend("eager", (query, key, value), attn_mask, is_causal, scale)


@declare(**_facts(profile="flash", masked_rows="zeros", known_faults=(FLASH_LAUNDERS_NAN,)))
def sdpa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """``attn_implementation="sdpa"``, the default of transformers."""
    return attend("sdpa", (query, key, value), attn_mask, is_causal, scale)


@declare(**_facts(profile="flash", masked_rows="zeros", known_faults=FLEX))
def flex(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    softcap: float | None = None,
) -> Tensor:
    """``attn_implementation="flex_attention"``, its compilation switched off.

    A mask is given whole along batch and queries: it indexes both, and broadcasts neither.
    """
    if attn_mask is not None:
        shape = (query.shape[0], attn_mask.shape[1], query.shape[2], key.shape[2])
        attn_mask = attn_mask.expand(shape)
    with torch.compiler.set_stance("force_eager"), uncompiled():
        return attend(
            "flex_attention", (query, key, value), attn_mask, is_causal, scale, softcap=softcap
        )
