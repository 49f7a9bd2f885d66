"""Frequencies of rotary embeddings, in torch and in the precision that models use.

Every scaling is computed here a second time, so that it is independent of the float64 reference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from equivalence.errors import Unsupported


def frequencies(
    rotary_dim: int,
    *,
    theta: float,
    scaling: Mapping[str, Any] | None,
    length: int,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Radians per position of each pair ``[rotary_dim / 2]``.

    scaling is a dict in the form of Hugging Face's rope parameters. Raises Unsupported for a
    type that it does not know.
    """
    plain = _plain(rotary_dim, theta, dtype)
    if scaling is None:
        return plain
    factor = float(scaling.get("factor") or 1.0)
    original = scaling.get("original_max_position_embeddings", 0)
    match scaling.get("rope_type", "default"):
        case "default":
            return plain
        case "linear":
            return plain / factor
        case "dynamic":
            stretch = factor * max(length, original) / original - (factor - 1)
            base = theta * stretch ** (rotary_dim / (rotary_dim - 2))
            return _powers(rotary_dim, base, dtype)
        case "yarn":
            ramp = _yarn_ramp(rotary_dim, theta, scaling).to(dtype)
            return plain / factor * ramp + plain * (1 - ramp)
        case "llama3":
            return _llama3(plain, scaling)
        case "longrope":
            name = "long_factor" if length > original else "short_factor"
            return plain / torch.tensor(scaling[name], dtype=dtype)
        case other:
            raise Unsupported(f"rope_type={other!r}")


def _powers(rotary_dim: int, base: float, dtype: torch.dtype) -> Tensor:
    """``base ** (-2 i / rotary_dim)`` of each pair."""
    index = torch.arange(0, rotary_dim, 2, dtype=torch.int64).to(dtype)
    powers: Tensor = 1.0 / base ** (index / rotary_dim)
    return powers


_plain = lru_cache(maxsize=64)(_powers)  # those of a model, which keeps them too; none writes there


def _yarn_ramp(rotary_dim: int, theta: float, scaling: Mapping[str, Any]) -> Tensor:
    """0 where a pair keeps its frequency, 1 where it is divided by the factor."""
    original = scaling["original_max_position_embeddings"]
    edges = [
        rotary_dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))
        for turns in (scaling.get("beta_fast") or 32, scaling.get("beta_slow") or 1)
    ]
    if scaling.get("truncate", True):
        edges = [math.floor(edges[0]), math.ceil(edges[1])]
    low, high = max(edges[0], 0), min(edges[1], rotary_dim - 1)
    if low == high:
        high += 0.001
    index = torch.arange(rotary_dim // 2, dtype=torch.float64)
    return ((index - low) / (high - low)).clamp(0, 1)


def _llama3(plain: Tensor, scaling: Mapping[str, Any]) -> Tensor:
    """Long waves are divided by the factor, short ones kept, those between blended."""
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    waves = scaling["original_max_position_embeddings"] / (2 * math.pi / plain)
    keep = ((waves - low) / (high - low)).clamp(0, 1)
    blend: Tensor = (1 - keep) * plain / scaling["factor"] + keep * plain
    return blend
