"""Operations that move elements and compute nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from equivalence.errors import Unsupported
from equivalence.mil.registry import operation

Ints = Sequence[int]


@operation("reshape")
def reshape(x: Tensor, shape: Ints) -> Tensor:
    """Another shape: 0 keeps an axis, -1 takes what is left."""
    if 0 in shape and x.numel():
        shape = [x.shape[axis] if size == 0 else size for axis, size in enumerate(shape)]
    return x.reshape(tuple(shape))


@operation("reshape_like", tensors="x ref_tensors")
def reshape_like(
    x: Tensor,
    ref_tensors: Sequence[Tensor],
    begins: Ints,
    ends: Ints,
    end_masks: Sequence[bool] | None = None,
) -> Tensor:
    """A shape put together from parts of the shapes of other tensors."""
    shape: list[int] = []
    for number, (ref, begin, end) in enumerate(zip(ref_tensors, begins, ends, strict=True)):
        open_end = end_masks is not None and end_masks[number]
        shape += ref.shape[begin : None if open_end else end]
    return x.reshape(shape)


@operation("transpose")
def transpose(x: Tensor, perm: Ints) -> Tensor:
    """The axes in another order."""
    return x.permute(tuple(perm))


@operation("expand_dims")
def expand_dims(x: Tensor, axes: Ints) -> Tensor:
    """Axes of length one at these places of the *result*."""
    rank = x.ndim + len(axes)
    for axis in sorted(axis % rank for axis in axes):
        x = x.unsqueeze(axis)
    return x


@operation("squeeze")
def squeeze(x: Tensor, axes: Ints | None = None) -> Tensor:
    """Without these axes of length one, or without all such axes."""
    return x.squeeze() if axes is None else x.squeeze(tuple(axes))


@operation("flatten2d")
def flatten2d(x: Tensor, axis: int = 1) -> Tensor:
    """The axes before ``axis`` as one, and the others as one."""
    rows = 1
    for size in x.shape[: axis % x.ndim if axis < 0 else axis]:
        rows *= size
    return x.reshape(rows, -1)


@operation("tile")
def tile(x: Tensor, reps: Ints) -> Tensor:
    """``x`` repeated along each axis, one whole copy after the other."""
    counted = list(zip(reps, x.shape, strict=True))
    if all(count == 1 or size == 1 for count, size in counted):
        # The same values without the copy: MIL has no views, but its evaluator may use them.
        return x.expand([count * size for count, size in counted])
    return x.repeat(tuple(reps))


@operation("concat", tensors="values")
def concat(values: Sequence[Tensor], axis: int, interleave: bool = False) -> Tensor:
    """One after the other along ``axis``; or one element of each in turn."""
    if not interleave:
        return torch.cat([value if value.ndim else value[None] for value in values], axis)
    stacked = torch.stack(tuple(values), axis % values[0].ndim + 1)
    return stacked.flatten(axis % values[0].ndim, axis % values[0].ndim + 1)


@operation("stack", tensors="values")
def stack(values: Sequence[Tensor], axis: int) -> Tensor:
    """Along a new axis."""
    return torch.stack(tuple(values), axis)


@operation("split")
def split(
    x: Tensor, axis: int, num_splits: int | None = None, split_sizes: Ints | None = None
) -> tuple[Tensor, ...]:
    """Pieces along ``axis``."""
    if split_sizes is not None:
        return torch.split(x, list(split_sizes), axis)
    assert num_splits is not None
    return torch.split(x, x.shape[axis] // num_splits, axis)


@operation("reverse")
def reverse(x: Tensor, axes: Ints | None = None) -> Tensor:
    """Backwards along ``axes``."""
    return x.flip(tuple(range(x.ndim)) if axes is None else tuple(axes))


@operation("pad")
def pad(x: Tensor, pad: Ints, mode: str = "constant", constant_val: float = 0.0) -> Tensor:
    """More elements at the ends of the last axes."""
    ends = [p for i in reversed(range(0, len(pad), 2)) for p in pad[i : i + 2]]
    if mode == "constant":
        return functional.pad(x, ends, value=constant_val)
    raise Unsupported(f"pad with mode {mode!r} cannot be evaluated")


@operation("shape")
def shape(x: Tensor) -> Tensor:
    """The lengths of the axes."""
    return torch.tensor(x.shape, dtype=torch.int32)


@operation("fill", tensors="")
def fill(shape: Ints, value: Any = 0.0) -> Tensor:
    """One number everywhere."""
    return torch.full(tuple(shape), value)


@operation("fill_like", tensors="ref_tensor")
def fill_like(ref_tensor: Tensor, value: Any = 0.0) -> Tensor:
    """One number everywhere, in the shape of another tensor."""
    return torch.full(tuple(ref_tensor.shape), value)


@operation("range_1d", tensors="")
def range_1d(end: Any, start: Any, step: Any) -> Tensor:
    """start, start + step, ... before ``end``."""
    whole = all(isinstance(number, int) for number in (start, end, step))
    return torch.arange(start, end, step, dtype=torch.int64 if whole else torch.float64)


@operation("band_part")
def band_part(x: Tensor, lower: int = -1, upper: int = -1) -> Tensor:
    """What lies within ``lower`` diagonals below and ``upper`` above; zero elsewhere."""
    row = torch.arange(x.shape[-2])[:, None]
    column = torch.arange(x.shape[-1])[None, :]
    keep = torch.ones((x.shape[-2], x.shape[-1]), dtype=torch.bool)
    if lower >= 0:
        keep &= row - column <= lower
    if upper >= 0:
        keep &= column - row <= upper
    return torch.where(keep, x, torch.zeros((), dtype=x.dtype))
