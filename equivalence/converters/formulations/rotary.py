"""Rotary embeddings with their tables given, as models pass them from layer to layer."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Half(nn.Module):
    """Channels (i, i + D / 2) are pairs; x ``[B, H, S, D]``, cos and sin ``[S, D / 2]``."""

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


class Interleaved(nn.Module):
    """Channels (2i, 2i + 1) are pairs."""

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        even, odd = x[..., 0::2], x[..., 1::2]
        turned = torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1)
        return turned.flatten(-2)
