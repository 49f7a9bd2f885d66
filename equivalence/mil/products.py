"""Matrix products, and the attention that is made of two of them."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

from equivalence.errors import Unsupported
from equivalence.mil.registry import operation


@operation("matmul", tensors="x y", accumulates=True)
def matmul(x: Tensor, y: Tensor, transpose_x: bool = False, transpose_y: bool = False) -> Tensor:
    """x @ y over the last two axes, the others broadcast."""
    if not x.is_floating_point():
        wide = matmul(x.double(), y.double(), transpose_x, transpose_y)
        return wide.to(x.dtype)
    return torch.matmul(
        x.transpose(-1, -2) if transpose_x else x, y.transpose(-1, -2) if transpose_y else y
    )


@operation("linear", tensors="x weight bias", accumulates=True)
def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x @ weight.T + bias."""
    return functional.linear(x, weight, bias)


@operation("einsum", tensors="values", accumulates=True)
def einsum(values: list[Tensor], equation: str) -> Tensor:
    """The sum of products that the equation names."""
    return torch.einsum(equation, *values)


@operation("scaled_dot_product_attention", tensors="query key value attn_mask", accumulates=True)
def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None
) -> Tensor:
    """softmax(q k^T / sqrt(d) + mask) v, written as the definition of the operation has it.

    A boolean mask adds -inf where it is False; a row that sees no key is NaN. Shape inference
    promises an output shaped like ``query``, whatever the other batch axes broadcast to. torch's
    own kernel is faster and is not used: on CPUs it makes 0 of a row whose scores are all NaN.
    """
    scores = torch.matmul(query, key.mT).div_(_root(query.shape[-1], query.dtype))
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attn_mask, -torch.inf)
        else:
            scores = scores + attn_mask
    return torch.matmul(torch.softmax(scores, -1), value)


@cache
def _root(size: int, dtype: torch.dtype) -> Tensor:
    """The root of ``size``; torch would make a tensor of a plain number again at each call.

    Divides a 16-bit type in float32, and rounds once, as a plain number does.
    """
    return torch.tensor(size**0.5, dtype=torch.promote_types(dtype, torch.float32))


@operation("conv", tensors="x weight bias", accumulates=True)
def conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    strides: list[int] | None = None,
    pad_type: str = "valid",
    pad: list[int] | None = None,
    dilations: list[int] | None = None,
    groups: int = 1,
) -> Tensor:
    """A convolution over one or two axes; what 1 x 1 projections are written as."""
    spatial = x.ndim - 2
    if spatial not in (1, 2) or pad_type not in ("valid", "custom"):
        raise Unsupported(f"conv of rank {x.ndim} with pad_type {pad_type!r} cannot be evaluated")
    if pad_type == "custom" and pad is not None and any(pad):
        # MIL lists (begin, end) from the first spatial axis, torch from the last.
        flat = [p for axis in reversed(range(spatial)) for p in pad[2 * axis : 2 * axis + 2]]
        x = functional.pad(x, flat)
    convolve = functional.conv1d if spatial == 1 else functional.conv2d
    ones = [1] * spatial
    return convolve(x, weight, bias, strides or ones, 0, dilations or ones, groups)
