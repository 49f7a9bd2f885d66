"""Parts of the tensors that are left out, counted twice, or read from the wrong place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from equivalence.diagnosis.imagining import (
    Sight,
    Suspect,
    World,
    full,
    rearranged,
    with_keys,
    with_visible,
)
from equivalence.dtypes import Array
from equivalence.inputs import AttentionInputs

TILES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128, 256)
KIND = "head-dim-tail"


def channels(sight: Sight) -> Iterator[Suspect]:
    """Channels beyond a tile that take no part."""
    head_dim, v_dim = sight.inputs.query.shape[-1], sight.inputs.value.shape[-1]
    for tile in (*(t for t in TILES if t < head_dim), head_dim - 1):
        if tile > 0:
            yield Suspect(
                kind=KIND,
                sentence=f"only the first {tile} of {head_dim} channels of query and key count",
                imagine=partial(_cut_channels, tile=tile),
                cost=6,
            )
    for tile in TILES[1:]:
        if head_dim % tile:
            yield Suspect(
                kind=KIND,
                sentence=(
                    f"channels of query and key beyond the last full tile of {tile} do not "
                    f"count: {head_dim % tile} of {head_dim}"
                ),
                imagine=partial(_cut_channels, tile=tile, tail_only=True),
                cost=7,
            )
    for tile in (t for t in TILES if t < v_dim):
        yield Suspect(
            kind=KIND,
            sentence=f"only the first {tile} of {v_dim} value channels come back, the rest are 0",
            imagine=partial(_cut_values, tile=tile),
            cost=7,
        )
    turns: dict[str, Callable[[Array], Array]] = {
        "reversed": lambda x: x[..., ::-1],
        "moved up by one": lambda x: np.roll(x, 1, axis=-1),
        "moved down by one": lambda x: np.roll(x, -1, axis=-1),
        "with their halves swapped": lambda x: np.roll(x, x.shape[-1] // 2, axis=-1),
    }
    for words, turn in turns.items():
        yield Suspect(
            kind=KIND,
            sentence=f"the channels of the values come back {words}",
            imagine=partial(_turned, turn=turn, operand="value"),
            cost=10,
        )
        yield Suspect(
            kind=KIND,
            sentence=f"the channels of the keys meet those of the query {words}",
            imagine=partial(_turned, turn=turn, operand="key"),
            cost=10,
        )


def _cut_channels(
    inputs: AttentionInputs, *, tile: int, tail_only: bool = False
) -> AttentionInputs | None:
    head_dim = inputs.query.shape[-1]
    kept = head_dim // tile * tile if tail_only else tile
    if kept >= head_dim:
        return inputs
    query = inputs.query.copy()
    query[..., kept:] = 0.0
    return inputs.but(query=query, scale=inputs.scale_value)


def _turned(
    inputs: AttentionInputs, *, turn: Callable[[Array], Array], operand: str
) -> AttentionInputs:
    return inputs.but(**{operand: turn(getattr(inputs, operand))})


def _cut_values(inputs: AttentionInputs, *, tile: int) -> AttentionInputs:
    value = inputs.value.copy()
    value[..., tile:] = 0.0
    return inputs.but(value=value)


def keys(sight: Sight) -> Iterator[Suspect]:
    """Keys that are skipped, counted twice, or made of padding."""
    kv_len = sight.inputs.key.shape[2]
    if kv_len == 0:
        return
    picks: list[tuple[str, Callable[[int], Array], int]] = [
        ("the last key does not count", lambda n: np.arange(n - 1), 7),
        ("the first key does not count", lambda n: np.arange(1, n), 7),
        ("the last key counts twice", lambda n: np.append(np.arange(n), n - 1), 8),
        ("the first key counts twice", lambda n: np.append(np.arange(n), 0), 8),
        ("every key counts twice", lambda n: np.tile(np.arange(n), 2), 11),
    ]
    for tile in TILES[1:]:
        if kv_len % tile and tile < kv_len:
            picks.append(
                (f"keys beyond the last full tile of {tile} do not count: {kv_len % tile} of "
                 f"{kv_len}", partial(_whole_tiles, tile=tile), 9)
            )  # fmt: skip
            picks.append(
                (f"keys beyond the last full tile of {tile} count twice: {kv_len % tile} of "
                 f"{kv_len}", partial(_tail_twice, tile=tile), 9)
            )  # fmt: skip
        if tile < kv_len:
            picks.append(
                (f"only the first {tile} of {kv_len} keys count",
                 partial(_first, tile=tile), 10)
            )  # fmt: skip
            picks.append(
                (f"the last key of each tile of {tile} does not count",
                 partial(_without_tile_ends, tile=tile), 11)
            )  # fmt: skip
            picks.append(
                (f"the key before each tile of {tile} counts twice",
                 partial(_tile_ends_twice, tile=tile), 11)
            )  # fmt: skip
    for sentence, pick, cost in picks:
        yield Suspect(kind=KIND, sentence=sentence, imagine=partial(_picked, pick=pick), cost=cost)
    for tile in (2, 4, 8, 16, 32, 64, 128):
        yield Suspect(
            kind=KIND,
            sentence=f"zeros that pad the keys to a multiple of {tile} count as keys",
            imagine=partial(_padded, tile=tile),
            cost=9,
        )
    yield from _indices(sight)


def _whole_tiles(n: int, *, tile: int) -> Array:
    return np.arange(n // tile * tile)


def _tail_twice(n: int, *, tile: int) -> Array:
    return np.append(np.arange(n), np.arange(n // tile * tile, n))


def _first(n: int, *, tile: int) -> Array:
    return np.arange(min(n, tile))


def _without_tile_ends(n: int, *, tile: int) -> Array:
    key = np.arange(n)
    kept: Array = key[(key % tile != tile - 1) | (key == n - 1)]
    return kept


def _tile_ends_twice(n: int, *, tile: int) -> Array:
    return np.sort(np.append(np.arange(n), np.arange(tile, n, tile) - 1))


def _picked(inputs: AttentionInputs, *, pick: Callable[[int], Array]) -> AttentionInputs:
    return with_keys(inputs, pick(inputs.key.shape[2]))


def _padded(inputs: AttentionInputs, *, tile: int) -> AttentionInputs | None:
    extra = -inputs.key.shape[2] % tile
    pinned = with_visible(inputs, full(inputs, inputs.visible))
    if extra == 0 or pinned.mask is None:
        return inputs
    mask = np.broadcast_to(pinned.mask, full(inputs, inputs.visible).shape)
    shown = (
        np.ones((*mask.shape[:3], extra), mask.dtype)
        if mask.dtype == bool
        else np.zeros((*mask.shape[:3], extra))
    )

    def longer(array: Array) -> Array:
        return np.concatenate([array, np.zeros((*array.shape[:2], extra, array.shape[3]))], axis=2)

    return pinned.but(
        key=longer(inputs.key),
        value=longer(inputs.value),
        mask=np.concatenate([mask, shown], axis=3),
    )


def _indices(sight: Sight) -> Iterator[Suspect]:
    """Indices that wrap, and blocks whose steps disagree."""
    if sight.inputs.mask is not None:
        for bits in range(3, 17):
            yield Suspect(
                kind=KIND,
                sentence=f"the flat index into the mask wraps at 2**{bits}",
                imagine=partial(_wrapped, limit=2**bits),
                cost=12,
            )
    head_dim, v_dim = sight.inputs.query.shape[-1], sight.inputs.value.shape[-1]
    if head_dim != v_dim:
        yield Suspect(
            kind=KIND,
            sentence=(
                f"blocks of {head_dim} keys meet blocks of {v_dim} values: "
                "the value step follows value_head_dim"
            ),
            imagine=_out_of_step,
            cost=9,
        )


def _wrapped(inputs: AttentionInputs, *, limit: int) -> AttentionInputs | None:
    if inputs.mask is None:
        return None
    mask = np.broadcast_to(
        inputs.mask, (*inputs.mask.shape[:2], inputs.query.shape[2], inputs.key.shape[2])
    )
    flat = mask.reshape(*mask.shape[:2], -1)
    index = np.arange(flat.shape[-1]) % limit
    return inputs.but(mask=flat[..., index].reshape(mask.shape))


def _out_of_step(inputs: AttentionInputs) -> AttentionInputs:
    block, step = inputs.query.shape[-1], inputs.value.shape[-1]
    key = np.arange(inputs.key.shape[2])
    index = np.minimum(key // block * step + key % block, len(key) - 1)
    return inputs.but(value=inputs.value[:, :, index])


def rows(sight: Sight) -> Iterator[Suspect]:
    """Query rows beyond a tile that are never computed."""
    q_len = sight.inputs.query.shape[2]
    for tile in (t for t in TILES if t < q_len):
        yield Suspect(
            kind=KIND,
            sentence=f"query rows beyond the first {tile} are never computed and stay 0",
            imagine=partial(_cut_rows, tile=tile),
            cost=10,
        )


def _cut_rows(inputs: AttentionInputs, *, tile: int) -> World:
    kept = (np.arange(inputs.query.shape[2]) < tile)[:, None]
    return rearranged(inputs, lambda output: np.where(kept, output, 0.0))
