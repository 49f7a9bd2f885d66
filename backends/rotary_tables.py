"""The angles of rotary embeddings, and what their cos and sin are multiplied with."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from equivalence.backends.rotary_frequencies import frequencies


def attention_factor_of(scaling: Mapping[str, Any] | None, explicit: float | None) -> float:
    """What cos and sin are multiplied with."""
    if explicit is not None:
        return explicit
    if scaling is None or scaling.get("rope_type") not in ("yarn", "longrope"):
        return 1.0
    if scaling.get("attention_factor") is not None:
        return float(scaling["attention_factor"])
    factor = scaling["factor"]
    if scaling["rope_type"] == "longrope":
        return math.sqrt(
            1 + math.log(factor) / math.log(scaling["original_max_position_embeddings"])
        )

    def magnitude(mscale: float) -> float:
        return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1 else 1.0

    if scaling.get("mscale") and scaling.get("mscale_all_dim"):
        return magnitude(scaling["mscale"]) / magnitude(scaling["mscale_all_dim"])
    return magnitude(1.0)


def angles(
    x: Tensor,
    positions: Tensor,
    *,
    theta: float,
    rotary_dim: int,
    scaling: Mapping[str, Any] | None,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """The angle of each token and pair: ``[B or 1, 1, S, rotary_dim / 2]``.

    Raises ValueError, with the sizes, where positions or rotary_dim do not fit x.
    """
    require_sizes(x, positions, rotary_dim)
    length = int(positions.max()) + 1
    omega = frequencies(rotary_dim, theta=theta, scaling=scaling, length=length, dtype=dtype)
    by_row = positions if positions.ndim == 2 else positions[None]
    return by_row[:, None, :, None].to(dtype) * omega.to(x.device)


def require_sizes(x: Tensor, positions: Tensor, rotary_dim: int) -> None:
    """Raise ValueError, with the sizes, where positions or rotary_dim do not fit x."""
    batch_size, _, seq_len, head_dim = x.shape
    if positions.shape not in ((seq_len,), (batch_size, seq_len)):
        raise ValueError(f"positions {list(positions.shape)} do not fit x {list(x.shape)}")
    if rotary_dim % 2 or not 0 < rotary_dim <= head_dim:
        raise ValueError(f"rotary_dim={rotary_dim} must be even, and at most {head_dim=}")
