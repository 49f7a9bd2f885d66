"""Rotary embeddings in torch's complex numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from equivalence.backends.rotary_tables import angles, attention_factor_of
from equivalence.declaration import rotary as declare


@declare(
    dtypes=("float64", "float32", "float16", "bfloat16"),
    profile="flash",
    pairing="interleaved",
    deterministic=True,
)
def complex_numbers(
    x: Tensor,
    positions: Tensor,
    *,
    theta: float = 10_000.0,
    rotary_dim: int | None = None,
    scaling: Mapping[str, Any] | None = None,
    attention_factor: float | None = None,
) -> Tensor:
    """Neighbouring channels as one complex number, times exp(i angle), as Llama's own code does."""
    turning = x.shape[-1] if rotary_dim is None else rotary_dim
    angle = angles(x, positions, theta=theta, rotary_dim=turning, scaling=scaling)
    factor = attention_factor_of(scaling, attention_factor)
    wide = x if x.dtype == torch.float64 else x.float()
    moving = torch.view_as_complex(wide[..., :turning].unflatten(-1, (-1, 2)).contiguous())
    turns = torch.polar(torch.full_like(angle, factor), angle)
    moved = torch.view_as_real(moving * turns.to(moving.dtype)).flatten(-2)
    return torch.cat((moved.to(x.dtype), x[..., turning:]), dim=-1)
