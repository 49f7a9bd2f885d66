"""MLX's fused attention and its rotary embedding, on the CPU (on the GPU of a Mac by default)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from equivalence.backends.head_folding import group_size_of
from equivalence.declaration import attention as declare
from equivalence.declaration import rotary as declare_rotary
from equivalence.errors import Unsupported

DTYPES = ("float32", "float16", "bfloat16")


@declare(
    dtypes=DTYPES,
    causal="lower_right",
    head_order="grouped",
    layout="BHSD",
    profile="math",  # the scale goes into the queries
    masked_rows="uniform_or_nan",
    deterministic=True,
    grouped=True,
    arrays="mlx",
)
def attention(
    query: Any,
    key: Any,
    value: Any,
    *,
    mask: Any = None,
    causal: bool = False,
    scale: float | None = None,
    sinks: Any = None,
) -> Any:
    """``mx.fast.scaled_dot_product_attention``; mask is an array or the word "causal", not both.

    query ``[B, H, Sq, D]``, key ``[B, Hkv, Skv, D]``, value ``[B, Hkv, Skv, Dv]`` ->
    ``[B, H, Sq, Dv]``. A row without a key is the mean of the values under a bool mask, and NaN
    under a mask of -inf; no key at all gives zeros.
    """
    group_size_of(query.shape[1], key.shape[1])
    if causal and mask is not None:
        raise Unsupported("mask is one array, or the word causal")
    return mx.fast.scaled_dot_product_attention(
        query,
        key,
        value,
        scale=query.shape[-1] ** -0.5 if scale is None else scale,
        mask="causal" if causal else mask,
        sinks=None if sinks is None else sinks.astype(query.dtype),
    )


def _turned(
    x: Any,
    positions: Any,
    theta: float,
    rotary_dim: int | None,
    scaling: Mapping[str, Any] | None,
    traditional: bool,
) -> Any:
    """``mx.fast.rope`` takes an offset for each batch row: here each token is a row of its own."""
    kind = (scaling or {}).get("rope_type", "default")
    if kind not in ("default", "linear"):
        raise Unsupported(f"rope_type={kind!r}")
    batch_size, num_heads, length, head_dim = x.shape
    turning = head_dim if rotary_dim is None else rotary_dim
    if turning % 2:
        raise Unsupported(f"rotary_dim={turning} is odd")
    offsets = mx.broadcast_to(positions, (batch_size, length)).astype(mx.int32)
    tokens = x.transpose(0, 2, 1, 3).reshape(batch_size * length, num_heads, 1, head_dim)
    turned = mx.fast.rope(
        tokens,
        turning,
        traditional=traditional,
        base=theta,
        scale=1.0 / float((scaling or {}).get("factor", 1.0)),
        offset=offsets.reshape(-1),
    )
    return turned.reshape(batch_size, length, num_heads, head_dim).transpose(0, 2, 1, 3)


@declare_rotary(dtypes=DTYPES, profile="eager", pairing="half", deterministic=True, arrays="mlx")
def rope_half(
    x: Any,
    positions: Any,
    *,
    theta: float = 10_000.0,
    rotary_dim: int | None = None,
    scaling: Mapping[str, Any] | None = None,
) -> Any:
    """``mx.fast.rope(traditional=False)``: x ``[B, H, S, D]``, positions ``[S]`` or ``[B, S]``."""
    return _turned(x, positions, theta, rotary_dim, scaling, traditional=False)


@declare_rotary(
    dtypes=DTYPES, profile="eager", pairing="interleaved", deterministic=True, arrays="mlx"
)
def rope_interleaved(
    x: Any,
    positions: Any,
    *,
    theta: float = 10_000.0,
    rotary_dim: int | None = None,
    scaling: Mapping[str, Any] | None = None,
) -> Any:
    """``mx.fast.rope(traditional=True)``: x ``[B, H, S, D]``, positions ``[S]`` or ``[B, S]``."""
    return _turned(x, positions, theta, rotary_dim, scaling, traditional=True)
