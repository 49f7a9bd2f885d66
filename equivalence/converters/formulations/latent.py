"""Latent attention (DeepSeek-V2), with keys rebuilt from the latent, or absorbed into queries."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn


class Latent(nn.Module):
    """Six tensors as in the mla kind; lower-right causal where ``causal`` is set."""

    def __init__(self, *, causal: bool = False, scale: float | None = None) -> None:
        super().__init__()
        self.causal: Final = causal
        self.scale: Final = scale

    def weights(self, scores: Tensor, query_content: Tensor, query_rotary: Tensor) -> Tensor:
        """The probabilities of raw scores ``[B, H, Sq, S]``."""
        width = query_content.shape[-1] + query_rotary.shape[-1]
        scores = scores * (width**-0.5 if self.scale is None else self.scale)
        if self.causal:
            q_len, kv_len = scores.shape[2], scores.shape[3]
            place = torch.arange(q_len)[:, None] + (kv_len - q_len)
            scores = scores.masked_fill(torch.arange(kv_len) > place, -torch.inf)
        return torch.softmax(scores, -1)


class Expanded(Latent):
    """Keys and values are rebuilt for every head, and the rotary key is expanded to all heads."""

    def forward(
        self,
        query_content: Tensor,
        query_rotary: Tensor,
        latent: Tensor,
        key_rotary: Tensor,
        w_uk: Tensor,
        w_uv: Tensor,
    ) -> Tensor:
        heads = query_content.shape[1]
        content = latent[:, None] @ w_uk.transpose(1, 2)
        rotary = key_rotary[:, None].expand(-1, heads, -1, -1)
        key = torch.cat([content, rotary], dim=-1)
        query = torch.cat([query_content, query_rotary], dim=-1)
        weights = self.weights(query @ key.transpose(2, 3), query_content, query_rotary)
        return weights @ (latent[:, None] @ w_uv.transpose(1, 2))


class Absorbed(Latent):
    """W_UK goes into the query and W_UV comes after the sum: nothing is rebuilt."""

    def forward(
        self,
        query_content: Tensor,
        query_rotary: Tensor,
        latent: Tensor,
        key_rotary: Tensor,
        w_uk: Tensor,
        w_uv: Tensor,
    ) -> Tensor:
        absorbed = query_content @ w_uk
        content = absorbed @ latent[:, None].transpose(2, 3)
        rotary = query_rotary @ key_rotary[:, None].transpose(2, 3)
        weights = self.weights(content + rotary, query_content, query_rotary)
        return (weights @ latent[:, None]) @ w_uv.transpose(1, 2)


class LatentLayer(nn.Module):
    """Either form with its up-projections inside, as a model holds them: four tensors are given."""

    def __init__(self, attend: Latent, w_uk: Tensor, w_uv: Tensor) -> None:
        super().__init__()
        self.attend: Final = attend
        self.w_uk = nn.Parameter(w_uk, requires_grad=False)
        self.w_uv = nn.Parameter(w_uv, requires_grad=False)

    def forward(
        self, query_content: Tensor, query_rotary: Tensor, latent: Tensor, key_rotary: Tensor
    ) -> Tensor:
        made: Tensor = self.attend(
            query_content, query_rotary, latent, key_rotary, self.w_uk, self.w_uv
        )
        return made
