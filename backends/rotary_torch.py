"""Rotary embeddings in torch's real numbers, with either pairing, and in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from equivalence.backends.rotary_tables import angles, attention_factor_of
from equivalence.declaration import rotary as declare

FORMATS = ("float64", "float32", "float16", "bfloat16")


@declare(dtypes=FORMATS, profile="eager", deterministic=True, options=("interleaved",))
def rotary(
    x: Tensor,
    positions: Tensor,
    *,
    theta: float = 10_000.0,
    rotary_dim: int | None = None,
    interleaved: bool = False,
    scaling: Mapping[str, Any] | None = None,
    attention_factor: float | None = None,
) -> Tensor:
    """Either pairing; cos and sin are rounded to the dtype of x, and so are products.

    x ``[B, H, S, D]``, positions ``[S]`` or ``[B, S]`` -> ``[B, H, S, D]``.
    """
    turning = x.shape[-1] if rotary_dim is None else rotary_dim
    angle = angles(x, positions, theta=theta, rotary_dim=turning, scaling=scaling)
    factor = attention_factor_of(scaling, attention_factor)
    cos, sin = (angle.cos() * factor).to(x.dtype), (angle.sin() * factor).to(x.dtype)
    return _turned(x, cos, sin, turning, interleaved)


@declare(dtypes=FORMATS, profile="flash", pairing="half", deterministic=True)
def half(
    x: Tensor,
    positions: Tensor,
    *,
    theta: float = 10_000.0,
    rotary_dim: int | None = None,
    scaling: Mapping[str, Any] | None = None,
    attention_factor: float | None = None,
) -> Tensor:
    """Pairs (i, i + r / 2), computed in float32 and rounded once."""
    return _wide(x, positions, theta, rotary_dim, scaling, attention_factor, interleaved=False)


@declare(dtypes=FORMATS, profile="flash", pairing="interleaved", deterministic=True)
def interleaved(
    x: Tensor,
    positions: Tensor,
    *,
    theta: float = 10_000.0,
    rotary_dim: int | None = None,
    scaling: Mapping[str, Any] | None = None,
    attention_factor: float | None = None,
) -> Tensor:
    """Pairs (2i, 2i + 1), computed in float32 and rounded once."""
    return _wide(x, positions, theta, rotary_dim, scaling, attention_factor, interleaved=True)


@declare(dtypes=FORMATS, profile="flash", tables="float64", deterministic=True)
def float64_table(
    x: Tensor,
    positions: Tensor,
    *,
    theta: float = 10_000.0,
    rotary_dim: int | None = None,
    interleaved: bool = False,
    scaling: Mapping[str, Any] | None = None,
    attention_factor: float | None = None,
) -> Tensor:
    """Either pairing, everything in float64 and rounded once."""
    turning = x.shape[-1] if rotary_dim is None else rotary_dim
    angle = angles(
        x, positions, theta=theta, rotary_dim=turning, scaling=scaling, dtype=torch.float64
    )
    factor = attention_factor_of(scaling, attention_factor)
    cos, sin = angle.cos() * factor, angle.sin() * factor
    return _turned(x.double(), cos, sin, turning, interleaved).to(x.dtype)


def _wide(
    x: Tensor,
    positions: Tensor,
    theta: float,
    rotary_dim: int | None,
    scaling: Mapping[str, Any] | None,
    attention_factor: float | None,
    *,
    interleaved: bool,
) -> Tensor:
    turning = x.shape[-1] if rotary_dim is None else rotary_dim
    angle = angles(x, positions, theta=theta, rotary_dim=turning, scaling=scaling)
    factor = attention_factor_of(scaling, attention_factor)
    wide = x if x.dtype == torch.float64 else x.float()
    cos, sin = (angle.cos() * factor).to(wide.dtype), (angle.sin() * factor).to(wide.dtype)
    return _turned(wide, cos, sin, turning, interleaved).to(x.dtype)


def _turned(x: Tensor, cos: Tensor, sin: Tensor, rotary_dim: int, interleaved: bool) -> Tensor:
    moving = x[..., :rotary_dim]
    if interleaved:
        first, second = moving[..., 0::2], moving[..., 1::2]
    else:
        first, second = moving.chunk(2, dim=-1)
    turned = (first * cos - second * sin, second * cos + first * sin)
    joined = torch.stack(turned, dim=-1).flatten(-2) if interleaved else torch.cat(turned, dim=-1)
    passed = x[..., rotary_dim:]
    return torch.cat((joined, passed), dim=-1) if passed.shape[-1] else joined
