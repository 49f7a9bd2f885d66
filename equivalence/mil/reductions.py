"""Sums, maxima, normalisations and sorting along axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from equivalence.mil.registry import operation

Axes = list[int] | None


def _over(x: Tensor, axes: Axes) -> list[int]:
    return list(range(x.ndim)) if axes is None else list(axes)


REDUCTIONS: dict[str, Callable[..., Tensor]] = {
    "reduce_sum": torch.sum,
    "reduce_mean": torch.mean,
    "reduce_max": torch.amax,
    "reduce_min": torch.amin,
    "reduce_l1_norm": lambda x, dim, keepdim: x.abs().sum(dim, keepdim=keepdim),
    "reduce_l2_norm": lambda x, dim, keepdim: x.square().sum(dim, keepdim=keepdim).sqrt(),
    "reduce_sum_square": lambda x, dim, keepdim: x.square().sum(dim, keepdim=keepdim),
    "reduce_log_sum": lambda x, dim, keepdim: x.sum(dim, keepdim=keepdim).log(),
    "reduce_log_sum_exp": torch.logsumexp,
}


def _reduction(reduce: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def evaluate(x: Tensor, axes: Axes = None, keep_dims: bool = False) -> Tensor:
        if not x.is_floating_point() and reduce is torch.mean:
            return torch.mean(x.double(), _over(x, axes), keepdim=keep_dims)
        return reduce(x, dim=_over(x, axes), keepdim=keep_dims)

    return evaluate


for _name, _reduce in REDUCTIONS.items():
    operation(_name, accumulates=True)(_reduction(_reduce))


@operation("reduce_prod", accumulates=True)
def reduce_prod(x: Tensor, axes: Axes = None, keep_dims: bool = False) -> Tensor:
    """The product over ``axes``."""
    for axis in sorted((a % x.ndim for a in _over(x, axes)), reverse=True):
        x = torch.prod(x, axis, keepdim=keep_dims)
    return x


@operation("reduce_argmax")
def reduce_argmax(
    x: Tensor, axis: int = -1, keep_dims: bool = False, output_dtype: Any = None
) -> Tensor:
    """Where the largest element lies."""
    del output_dtype
    return torch.argmax(x, axis, keepdim=keep_dims)


@operation("reduce_argmin")
def reduce_argmin(
    x: Tensor, axis: int = -1, keep_dims: bool = False, output_dtype: Any = None
) -> Tensor:
    """Where the smallest element lies."""
    del output_dtype
    return torch.argmin(x, axis, keepdim=keep_dims)


@operation("softmax", accumulates=True)
def softmax(x: Tensor, axis: int = -1) -> Tensor:
    """e^x over its sum; a row of -inf is NaN."""
    return torch.softmax(x, axis)


@operation("cumsum", accumulates=True)
def cumsum(x: Tensor, axis: int = 0, exclusive: bool = False, reverse: bool = False) -> Tensor:
    """Running sums."""
    turned = x.flip(axis) if reverse else x
    sums = torch.cumsum(turned, axis)
    if exclusive:
        sums = sums - turned
    return sums.flip(axis) if reverse else sums


@operation("layer_norm", tensors="x gamma beta", accumulates=True)
def layer_norm(
    x: Tensor,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    axes: Axes = None,
    epsilon: float = 1e-5,
) -> Tensor:
    """(x - mean) / sqrt(variance + epsilon), times gamma plus beta."""
    over = sorted(axis % x.ndim for axis in _over(x, axes))
    shape = [size if axis in over else 1 for axis, size in enumerate(x.shape)]
    centred = x - x.mean(over, keepdim=True)
    normed = centred * torch.rsqrt(centred.square().mean(over, keepdim=True) + epsilon)
    if gamma is not None:
        normed = normed * gamma.reshape(shape)
    return normed if beta is None else normed + beta.reshape(shape)


@operation("l2_norm", accumulates=True)
def l2_norm(x: Tensor, epsilon: float = 1e-6) -> Tensor:
    """x over its Euclidean norm, of the last three axes together."""
    over = list(range(max(0, x.ndim - 3), x.ndim))
    return x * torch.rsqrt(x.square().sum(over, keepdim=True) + epsilon)


@operation("topk")
def topk(
    x: Tensor,
    k: int = 1,
    axis: int = -1,
    ascending: bool = False,
    sort: bool = True,
    return_indices: bool = True,
    output_indices_dtype: Any = None,
) -> tuple[Tensor, ...]:
    """The k largest (or smallest) elements, and where they lie."""
    del output_indices_dtype
    found = torch.topk(x, k, axis, largest=not ascending, sorted=sort)
    return (found.values, found.indices) if return_indices else (found.values,)


@operation("argsort")
def argsort(x: Tensor, axis: int = -1, ascending: bool = False) -> Tensor:
    """The order of the elements."""
    return torch.argsort(x, dim=axis, descending=not ascending, stable=True)
