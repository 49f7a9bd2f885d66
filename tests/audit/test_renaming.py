"""What a graph is called, and what does nothing in it, changes no answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from equivalence.audit.account import Account, account_of
from equivalence.audit.read_mil import read_mil
from equivalence.coreml.quiet import coremltools

HEADS, KV, CONTEXT, WIDTH = 6, 2, 5, 4
COPY = HEADS * CONTEXT * WIDTH * 2

Repeat = Callable[[Any, Any], Any]


def attention(
    key_repeat: Repeat, value_repeat: Repeat | None = None, *, prefix: str = "", extra: bool = False
) -> Account:
    """A hand-written graph with these ways of repeating; ``extra`` puts in identities."""
    coremltools()
    from coremltools.converters.mil import Builder as mb  # noqa: N813
    from coremltools.converters.mil.mil import types

    half = types.fp16
    kv = mb.TensorSpec((1, KV, CONTEXT, WIDTH), dtype=half)

    @mb.program(input_specs=[mb.TensorSpec((1, HEADS, 1, WIDTH), dtype=half), kv, kv])
    def program(query: Any, key: Any, value: Any) -> Any:
        def still(x: Any) -> Any:
            return mb.identity(x=x) if extra else x

        wide = still(key_repeat(mb, still(key)))
        scores = mb.matmul(x=query, y=wide, transpose_y=True, name=f"{prefix}scores")
        weights = still(mb.softmax(x=still(scores), axis=-1))
        wide_value = (value_repeat or key_repeat)(mb, value)
        return mb.matmul(x=weights, y=still(wide_value), name=f"{prefix}output")

    return account_of(read_mil(program), name="graph")


def tile(mb: Any, x: Any) -> Any:
    wide = mb.tile(x=mb.expand_dims(x=x, axes=[2]), reps=[1, 1, HEADS // KV, 1, 1], name="tile_me")
    return mb.reshape(x=wide, shape=[1, HEADS, CONTEXT, WIDTH])


def anything(mb: Any, x: Any) -> Any:
    wide = mb.tile(x=mb.expand_dims(x=x, axes=[2]), reps=[1, 1, HEADS // KV, 1, 1], name="matmul_9")
    return mb.reshape(x=wide, shape=[1, HEADS, CONTEXT, WIDTH], name="softmax")


def gather(mb: Any, x: Any) -> Any:
    return mb.gather(x=x, indices=np.array([0, 0, 0, 1, 1, 1], np.int32), axis=1)


def concat(mb: Any, x: Any) -> Any:
    first, second = mb.split(x=x, num_splits=2, axis=1)
    return mb.concat(values=[first] * 3 + [second] * 3, axis=1)


def stack(mb: Any, x: Any) -> Any:
    wide = mb.stack(values=[x] * 3, axis=2)
    return mb.reshape(x=wide, shape=[1, HEADS, CONTEXT, WIDTH])


def taking_turns(mb: Any, x: Any) -> Any:
    return mb.concat(values=[x] * 3, axis=1, interleave=True)


def times_ones(mb: Any, x: Any) -> Any:
    ones = np.ones((1, 1, 3, 1, 1), np.float16)
    wide = mb.mul(x=mb.expand_dims(x=x, axes=[2]), y=ones)
    return mb.reshape(x=wide, shape=[1, HEADS, CONTEXT, WIDTH])


def slices(mb: Any, x: Any) -> Any:
    heads = [
        mb.slice_by_index(x=x, begin=[0, h, 0, 0], end=[1, h + 1, CONTEXT, WIDTH])
        for h in (0, 0, 0, 1, 1, 1)
    ]
    return mb.concat(values=heads, axis=1)


def interleaved(mb: Any, x: Any) -> Any:
    return mb.tile(x=x, reps=[1, 3, 1, 1])


@pytest.mark.parametrize(
    "repeat", [tile, anything, gather, concat, stack, taking_turns, times_ones, slices]
)
def test_whatever_repeats_heads_is_found(repeat: Repeat) -> None:
    account = attention(repeat)
    assert [(one.roles, one.matched, one.order) for one in account.of_heads] == [
        (["key"], (KV, HEADS), "grouped"),
        (["value"], (KV, HEADS), "grouped"),
    ]
    assert account.head_bytes == account.head_bytes_read == 2 * COPY


def test_interleaved_repeats_are_told_from_grouped_ones() -> None:
    account = attention(interleaved)
    assert {one.order for one in account.of_heads} == {"interleaved"}


def test_names_and_identities_change_nothing() -> None:
    plain, renamed = attention(tile), attention(anything, prefix="tile_")
    padded = attention(tile, extra=True)
    for other in (renamed, padded):
        assert other.head_bytes == plain.head_bytes
        assert other.head_bytes_read == plain.head_bytes_read
        assert other.flow == plain.flow
        assert other.macs == plain.macs
        assert [one.roles for one in other.of_heads] == [one.roles for one in plain.of_heads]


def test_a_tile_of_something_else_is_not_one_of_heads() -> None:
    coremltools()
    from coremltools.converters.mil import Builder as mb  # noqa: N813
    from coremltools.converters.mil.mil import types

    half = types.fp16
    kv = mb.TensorSpec((1, HEADS, CONTEXT, WIDTH), dtype=half)

    @mb.program(
        input_specs=[
            mb.TensorSpec((1, HEADS, 3, WIDTH), dtype=half), kv, kv,
            mb.TensorSpec((1, 1, 1, CONTEXT), dtype=half),
        ]
    )  # fmt: skip
    def program(query: Any, key: Any, value: Any, mask: Any) -> Any:
        wide = mb.tile(x=mask, reps=[1, 1, 3, 1], name="key_tile")
        scores = mb.add(x=mb.matmul(x=query, y=key, transpose_y=True), y=wide)
        return mb.matmul(x=mb.softmax(x=scores, axis=-1), y=value)

    account = account_of(read_mil(program), name="graph")
    assert account.of_heads == []
    assert [(one.roles, one.factor) for one in account.replications] == [(["mask"], 3)]
