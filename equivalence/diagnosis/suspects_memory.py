"""Tensors read in another order than they are in: BSHD for BHSD, strides ignored."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from equivalence.diagnosis.imagining import Sight, Suspect, World, rearranged
from equivalence.dtypes import Array
from equivalence.inputs import AttentionInputs
from equivalence.memory import lay_out
from equivalence.reference import attention


def layouts(sight: Sight) -> Iterator[Suspect]:
    """Heads taken for positions."""
    yield Suspect(
        kind="layout",
        sentence="tensors are read as BSHD, expected BHSD: heads and positions change places",
        imagine=_as_bshd,
        cost=5,
        declare="layout=BSHD",
    )
    yield Suspect(
        kind="layout",
        sentence="the output holds BSHD data behind a BHSD shape: a transpose is missing",
        imagine=lambda i: rearranged(i, lambda o: o.swapaxes(1, 2).reshape(o.shape)),
        cost=6,
    )
    yield Suspect(
        kind="layout",
        sentence="key and value are read as BSHD behind a BHSD shape",
        imagine=lambda i: i.but(key=_reinterpreted(i.key), value=_reinterpreted(i.value)),
        cost=8,
    )


def _reinterpreted(array: Array) -> Array:
    return np.ascontiguousarray(array.swapaxes(1, 2)).reshape(array.shape)


def _as_bshd(inputs: AttentionInputs) -> World | None:
    query, key, value = (x.swapaxes(1, 2) for x in (inputs.query, inputs.key, inputs.value))
    if query.shape[1] % key.shape[1] or query.shape[1] < 1:
        return None
    swapped = inputs.but(
        query=query, key=key, value=value,
        kv_head_of=np.arange(query.shape[1]) // (query.shape[1] // key.shape[1]),
    )  # fmt: skip
    return World(
        inputs=swapped, exact=attention(swapped), rearrange=lambda output: output.swapaxes(1, 2)
    )


def strides(sight: Sight) -> Iterator[Suspect]:
    """The buffer read as if it lay in C order, or with a last stride of one."""
    memory = sight.inputs.memory
    if memory == "contiguous":
        return
    for cost, names in enumerate(
        (("value",), ("key",), ("query",), ("key", "value"), ("query", "key", "value"))
    ):
        which = " and ".join(names)
        yield Suspect(
            kind="strides",
            sentence=f"strides are ignored: {which} ({memory}) read as if contiguous",
            imagine=partial(_raw, names=names, memory=memory),
            cost=3 + cost,
        )
        yield Suspect(
            kind="strides",
            sentence=f"the last stride of {which} ({memory}) is taken to be 1",
            imagine=partial(_last_stride_one, names=names, memory=memory),
            cost=4 + cost,
        )


def _raw(inputs: AttentionInputs, *, names: tuple[str, ...], memory: str) -> AttentionInputs:
    return inputs.but(
        **{n: _from_buffer(getattr(inputs, n), memory, last_only=False) for n in names}
    )


def _last_stride_one(
    inputs: AttentionInputs, *, names: tuple[str, ...], memory: str
) -> AttentionInputs:
    return inputs.but(
        **{n: _from_buffer(getattr(inputs, n), memory, last_only=True) for n in names}
    )


def _from_buffer(array: Array, memory: str, *, last_only: bool) -> Array:
    """What lies where a kernel looks that trusts C order, or a last stride of one."""
    view = lay_out(array, memory)
    base = view
    while isinstance(base.base, np.ndarray):
        base = base.base
    flat = base.reshape(-1)
    start = (view.__array_interface__["data"][0] - flat.__array_interface__["data"][0]) // 8
    index = np.arange(array.size).reshape(array.shape)
    if last_only:
        grids = np.ogrid[tuple(slice(n) for n in array.shape)]
        steps = [*(s // 8 for s in view.strides[:3]), 1]
        index = np.asarray(sum(grid * step for grid, step in zip(grids, steps, strict=True)))
    found: Array = flat[np.minimum(start + index, flat.size - 1)]
    return found
