"""Attention through ``scaled_dot_product_attention``, with the heads matched in four ways."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional

from equivalence.converters.formulations.spelled_out import SpelledOut, repeated, row_mask


class Fused(SpelledOut):
    """Causal order is ``is_causal`` where ``square`` says q_len == kv_len, else a mask."""

    def __init__(
        self, *, causal: bool = False, scale: float | None = None, square: bool = False
    ) -> None:
        super().__init__(causal=causal, scale=scale)
        self.square: Final = square

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **options: Any
    ) -> Tensor:
        """The call itself; a scale is passed only where it is not the default."""
        if self.causal and self.square:
            options["is_causal"] = True
        elif self.causal:
            mask = ~self.hidden(query, key)
        if self.scale is not None:
            options["scale"] = self.scale
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, **options)


class Sdpa(Fused):
    """As many key/value heads as query heads."""

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        return self.attend(query, key, value, mask)


class SdpaRepeatKV(Fused):
    """Keys and values repeated first."""

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        groups = query.shape[1] // key.shape[1]
        return self.attend(query, repeated(key, groups), repeated(value, groups), mask)


class SdpaGqa(Fused):
    """``enable_gqa``: the operator is told that heads are grouped."""

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        return self.attend(query, key, value, mask, enable_gqa=True)


class SdpaFold(Fused):
    """Groups folded into the queries, so that SDPA sees equal heads; masks are widened."""

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        batch, heads, q_len, width = query.shape
        kv_heads = key.shape[1]
        folded = query.reshape(batch, kv_heads, heads // kv_heads * q_len, width)
        if self.causal:
            mask = ~self.hidden(query, key)[None, None]
        options: dict[str, Any] = {} if self.scale is None else {"scale": self.scale}
        wide = None if mask is None else row_mask(mask, heads, kv_heads, q_len)
        output = functional.scaled_dot_product_attention(
            folded, key, value, attn_mask=wide, **options
        )
        return torch.reshape(output, (batch, heads, q_len, value.shape[3]))
