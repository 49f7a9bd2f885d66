"""Which key head, value head, query head and batch row each output head reads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from equivalence.dtypes import Array
from equivalence.probes.asking import Asker, probe

PEAK_QUERY, PEAK_KEY = 16.0, 32.0  # a product that decides a softmax at any usual scale


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadMap:
    """For each query head, what it reads; None where it reads a mixture or nothing known.

    value_side, key_side: the key/value head. query_side: the query head. batch_rows: for each
    batch row, the row whose values it reads. ``total``: the sum of the probabilities.
    """

    num_kv_heads: int
    group_size: int
    value_side: tuple[int | None, ...]
    key_side: tuple[int | None, ...] | None
    query_side: tuple[int | None, ...] | None
    batch_rows: tuple[int | None, ...]
    total: float

    @property
    def order(self) -> str:
        """The name of the map, or the map itself."""
        if self.key_side is not None and self.key_side != self.value_side:
            keys = map_name(self.key_side, self.num_kv_heads, self.group_size)
            values = map_name(self.value_side, self.num_kv_heads, self.group_size)
            return f"keys {keys}, values {values}"
        return map_name(self.value_side, self.num_kv_heads, self.group_size)

    @property
    def mixes_heads(self) -> bool:
        """Whether some output holds values of several heads or batch rows."""
        return None in self.value_side or None in self.batch_rows

    @property
    def queries_in_order(self) -> bool:
        """Whether output head h comes from query head h."""
        return self.query_side in (None, tuple(range(len(self.value_side))))


def map_name(found: tuple[int | None, ...], num_kv_heads: int, group_size: int) -> str:
    """The name of a map from query heads to key/value heads: the first that fits."""
    heads = range(num_kv_heads * group_size)
    named = {
        "grouped": tuple(h // group_size for h in heads),
        "interleaved": tuple(h % num_kv_heads for h in heads),
        "reversed": tuple(num_kv_heads - 1 - h // group_size for h in heads),
        "all on head 0": tuple(0 for _ in heads),
    }
    for name, expected in named.items():
        if found == expected:
            return name
    return "mixed" if None in found else str(found)


@probe
def head_map(
    asker: Asker, *, batch_size: int = 2, num_kv_heads: int = 2, group_size: int = 3
) -> HeadMap:
    """Three calls: values that name their head, keys that do, queries that do."""
    shape = asker.shape(
        batch_size=batch_size,
        num_kv_heads=num_kv_heads,
        group_size=group_size,
        q_len=2,
        kv_len=2,
        head_dim=8,
    )
    slots = shape.batch_size * shape.num_kv_heads
    slot = np.arange(slots).reshape(shape.batch_size, shape.num_kv_heads)
    width = shape.value_head_dim
    if slots <= width:
        value = np.broadcast_to(np.eye(slots, width)[slot][:, :, None], shape.value)
        weights = asker.ask(np.zeros(shape.query), np.zeros(shape.key), value)[:, :, -1, :slots]
        found = np.where(weights.max(-1) > 0.9 * weights.sum(-1), weights.argmax(-1), -1)
        total = float(np.nan_to_num(weights.sum(-1)).mean())
    else:
        value = np.broadcast_to(slot[:, :, None, None] + 1.0, shape.value)
        found = _slot_of(asker.ask(np.zeros(shape.query), np.zeros(shape.key), value))
        total = float("nan")
    heads = shape.num_kv_heads
    return HeadMap(
        num_kv_heads=heads,
        group_size=shape.group_size,
        value_side=_shared(np.where(found < 0, -1, found % heads), axis=0),
        key_side=_key_side(asker, batch_size, num_kv_heads, group_size),
        query_side=_query_side(asker, num_kv_heads, group_size),
        batch_rows=_shared(np.where(found < 0, -1, found // heads), axis=1),
        total=total,
    )


def _key_side(
    asker: Asker, batch_size: int, num_kv_heads: int, group_size: int
) -> tuple[int | None, ...] | None:
    """Each key head draws the attention to a slot of its own; the values name the slot."""
    shape = asker.shape(
        batch_size=batch_size,
        num_kv_heads=num_kv_heads,
        group_size=group_size,
        kv_len=batch_size * num_kv_heads,
        q_len=2,
    )
    slots = shape.batch_size * shape.num_kv_heads
    if shape.kv_len < slots:
        return None
    query, key = np.zeros(shape.query), np.zeros(shape.key)
    query[..., 0] = PEAK_QUERY
    slot = np.arange(slots).reshape(shape.batch_size, shape.num_kv_heads)
    np.put_along_axis(key[..., 0], slot[:, :, None], PEAK_KEY, axis=2)
    found = _slot_of(asker.ask(query, key, _numbered(shape.value)))
    return _shared(np.where(found < 0, -1, found % shape.num_kv_heads), axis=0)


def _query_side(asker: Asker, num_kv_heads: int, group_size: int) -> tuple[int | None, ...] | None:
    """Each query head points, by a code of signs, to a key of its own."""
    heads = num_kv_heads * group_size
    bits = max(1, (heads - 1).bit_length())
    shape = asker.shape(
        num_kv_heads=num_kv_heads, group_size=group_size, kv_len=heads, q_len=2, head_dim=bits
    )
    heads = shape.num_heads
    bits = max(1, (heads - 1).bit_length())
    if shape.head_dim < bits or shape.kv_len < heads:
        return None
    codes = np.where((np.arange(shape.kv_len)[:, None] >> np.arange(shape.head_dim)) & 1, 1.0, -1.0)
    codes[:, bits:] = 0.0
    codes[heads:] = 0.0  # further keys, of a target that takes no fewer, draw nothing
    query = np.broadcast_to(PEAK_QUERY * codes[None, :heads, None], shape.query)
    key = np.broadcast_to(PEAK_KEY * codes[None, None], shape.key)
    return _shared(_slot_of(asker.ask(query, key, _numbered(shape.value))), axis=0)


def _numbered(shape: tuple[int, ...]) -> Array:
    """Values that hold the number of their key, from 1."""
    return np.broadcast_to(np.arange(shape[2])[None, None, :, None] + 1.0, shape)


def _slot_of(output: Array) -> Array:
    """The slot that the last row of each head names: int ``[B, H]``, -1 for a mixture."""
    named = np.nan_to_num(output[:, :, -1, 0], nan=-1.0, posinf=-1.0, neginf=-1.0)
    whole = np.round(named)
    return np.where(np.abs(named - whole) <= 0.02 * np.maximum(whole, 1), whole - 1, -1).astype(int)


def _shared(found: Array, *, axis: int) -> tuple[int | None, ...]:
    """What all entries along ``axis`` of an int ``[B, H]`` agree on, None where they do not."""
    first = found.take(0, axis=axis)
    agreed = (found == np.expand_dims(first, axis)).all(axis=axis)
    known = zip(first, agreed, strict=True)
    return tuple(int(f) if a and f >= 0 else None for f, a in known)
