"""Slices, gathers and scatters, with MIL's defaults."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from equivalence.errors import Unsupported
from equivalence.mil.registry import operation

Ints = Sequence[int]
Flags = Sequence[bool] | None


def _slices(
    x: Tensor,
    begin: Ints,
    end: Ints,
    stride: Ints | None,
    begin_mask: Flags,
    end_mask: Flags,
    squeeze_mask: Flags,
) -> tuple[slice | int, ...]:
    found: list[slice | int] = []
    for axis in range(x.ndim):
        if squeeze_mask is not None and squeeze_mask[axis]:
            found.append(0 if begin_mask is not None and begin_mask[axis] else begin[axis])
            continue
        first = None if begin_mask is not None and begin_mask[axis] else begin[axis]
        last = None if end_mask is not None and end_mask[axis] else end[axis]
        found.append(slice(first, last, 1 if stride is None else stride[axis]))
    return tuple(found)


def _turned(x: Tensor, slices: tuple[slice | int, ...]) -> tuple[Tensor, tuple[slice | int, ...]]:
    """The same slices with positive strides, of ``x`` turned round where they were negative."""
    flipped = [a for a, s in enumerate(slices) if isinstance(s, slice) and (s.step or 1) < 0]
    if not flipped:
        return x, slices
    positive: list[slice | int] = list(slices)
    for axis in flipped:
        found = slices[axis]
        assert isinstance(found, slice)
        places = range(*found.indices(x.shape[axis]))
        size = x.shape[axis]
        first = size - 1 - places.start
        positive[axis] = slice(first, first + len(places) * -places.step, -places.step)
    return x.flip(flipped), tuple(positive)


@operation("slice_by_index")
def slice_by_index(
    x: Tensor,
    begin: Ints,
    end: Ints,
    stride: Ints | None = None,
    begin_mask: Flags = None,
    end_mask: Flags = None,
    squeeze_mask: Flags = None,
) -> Tensor:
    """x[begin : end : stride], axis by axis; masks open an end, or drop the axis."""
    turned, slices = _turned(x, _slices(x, begin, end, stride, begin_mask, end_mask, squeeze_mask))
    return turned[slices]


@operation("slice_update", tensors="x update")
def slice_update(
    x: Tensor,
    update: Tensor,
    begin: Ints,
    end: Ints,
    stride: Ints | None = None,
    begin_mask: Flags = None,
    end_mask: Flags = None,
    squeeze_mask: Flags = None,
) -> Tensor:
    """``x`` with ``update`` in the place that slice_by_index would read."""
    slices = _slices(x, begin, end, stride, begin_mask, end_mask, squeeze_mask)
    if any(isinstance(s, slice) and (s.step or 1) < 0 for s in slices):
        raise Unsupported("slice_update with a negative stride cannot be evaluated")
    copy = x.clone()
    copy[slices] = update
    return copy


@operation("slice_by_size")
def slice_by_size(x: Tensor, begin: Ints, size: Ints) -> Tensor:
    """``size`` elements from ``begin``, axis by axis; -1 for all that are left."""
    slices = []
    for axis, (first, count) in enumerate(zip(begin, size, strict=True)):
        start = first + x.shape[axis] if first < 0 else first
        slices.append(slice(start, None if count < 0 else start + count))
    return x[tuple(slices)]


def _inside(indices: Tensor, size: int) -> Tensor:
    """Indices counted from the front; one out of range is refused, as its result is undefined."""
    counted = indices.long()
    counted = torch.where(counted < 0, counted + size, counted)
    if counted.numel() and bool(((counted < 0) | (counted >= size)).any()):
        raise IndexError(f"an index is outside an axis of length {size}")
    return counted


@operation("gather", tensors="x indices")
def gather(
    x: Tensor, indices: Tensor, axis: int = 0, batch_dims: int = 0, validate_indices: bool = False
) -> Tensor:
    """The slices of ``x`` along ``axis`` that ``indices`` name."""
    del validate_indices
    axis = axis % x.ndim
    if batch_dims:
        rows = [
            gather(part, which, axis - 1, batch_dims - 1)
            for part, which in zip(x, indices, strict=True)
        ]
        return torch.stack(rows)
    chosen = torch.index_select(x, axis, _inside(indices, x.shape[axis]).reshape(-1))
    return chosen.reshape((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))


@operation("gather_along_axis", tensors="x indices")
def gather_along_axis(
    x: Tensor, indices: Tensor, axis: int = 0, validate_indices: bool = False
) -> Tensor:
    """Element by element: ``indices`` has the rank of ``x``."""
    del validate_indices
    return torch.take_along_dim(x, _inside(indices, x.shape[axis]), axis)


@operation("gather_nd", tensors="x indices")
def gather_nd(
    x: Tensor, indices: Tensor, batch_dims: int = 0, validate_indices: bool = False
) -> Tensor:
    """The elements or slices of ``x`` that the last axis of ``indices`` names."""
    del validate_indices
    if batch_dims:
        pairs = zip(x, indices, strict=True)
        return torch.stack([gather_nd(part, which, batch_dims - 1) for part, which in pairs])
    places = tuple(_inside(indices[..., i], x.shape[i]) for i in range(indices.shape[-1]))
    return x[places]


_ARITHMETIC: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "max": torch.maximum,
    "min": torch.minimum,
    "update": lambda old, new: new,
}


def _written(data: Tensor, places: tuple[Tensor, ...], updates: Tensor, mode: str) -> Tensor:
    """One update after the other, so that a place that is named twice gets both."""
    if mode not in _ARITHMETIC:
        raise Unsupported(f"scatter with mode {mode!r} cannot be evaluated")
    copy, shape = data.clone(), places[0].shape
    flat = updates.reshape(-1, *updates.shape[len(shape) :])
    for number, place in enumerate(zip(*(p.reshape(-1).tolist() for p in places), strict=True)):
        copy[place] = _ARITHMETIC[mode](copy[place], flat[number])
    return copy


@operation("scatter_nd", tensors="data indices updates")
def scatter_nd(
    data: Tensor,
    indices: Tensor,
    updates: Tensor,
    mode: str = "add",
    validate_indices: bool = False,
) -> Tensor:
    """``data`` with updates at the places that the last axis of ``indices`` names."""
    del validate_indices
    places = tuple(_inside(indices[..., i], data.shape[i]) for i in range(indices.shape[-1]))
    return _written(data, places, updates, mode)


@operation("scatter", tensors="data indices updates")
def scatter(
    data: Tensor,
    indices: Tensor,
    updates: Tensor,
    axis: int = 0,
    mode: str = "add",
    validate_indices: bool = False,
) -> Tensor:
    """``data`` with updates of its slices along ``axis``."""
    del validate_indices
    axis = axis % data.ndim
    first = data.movedim(axis, 0)
    # The axes of the indices stand where ``axis`` was; bring them to the front.
    own = list(range(axis, axis + indices.ndim))
    others = [a for a in range(updates.ndim) if a not in own]
    moved = updates.permute(*own, *others)
    written = _written(first, (_inside(indices, data.shape[axis]),), moved, mode)
    return written.movedim(0, axis)


@operation("scatter_along_axis", tensors="data indices updates")
def scatter_along_axis(
    data: Tensor,
    indices: Tensor,
    updates: Tensor,
    axis: int = 0,
    mode: str = "add",
    validate_indices: bool = False,
) -> Tensor:
    """Element by element: ``indices`` and ``updates`` have the rank of ``data``."""
    del validate_indices
    grid = list(torch.meshgrid(*(torch.arange(n) for n in indices.shape), indexing="ij"))
    grid[axis % data.ndim] = _inside(indices, data.shape[axis])
    return _written(data, tuple(grid), updates, mode)
