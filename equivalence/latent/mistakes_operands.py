"""Mistakes of which operand is read: of another token, head or batch row, or only in part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from equivalence.dtypes import Array
from equivalence.latent.inputs import LatentInputs
from equivalence.latent.mistakes import Mistake, evaluated
from equivalence.latent.reference import per_head

TILES: Final = (512, 256, 128, 64, 32, 16, 8, 4, 2)  # a wider one explains fewer cases
NORM_EPSILONS: Final = (1e-6, 1e-5)


def operands() -> Iterator[Mistake]:
    """All of them, the more specific first."""
    yield from _scaled_in_part()
    yield from _of_another_token()
    yield from _of_another_head()
    yield from _of_another_row()
    for epsilon in NORM_EPSILONS:
        yield Mistake(
            kind="mla-absorption",
            text="the cached latent is normed a second time",
            predict=lambda inputs, eps=epsilon: _exact(inputs.but(latent=_normed(inputs, eps))),  # type: ignore[misc]
        )
    for tile in TILES:
        yield Mistake(
            kind="head-dim-tail",
            text=f"beyond {tile} tokens, those behind the last full tile of {tile} are not read",
            predict=lambda inputs, tile=tile: _without_tail(inputs, tile),  # type: ignore[misc]
        )


def _exact(inputs: LatentInputs) -> Array:
    return evaluated(inputs)


def _scaled_in_part() -> Iterator[Mistake]:
    for text, name in (
        ("the rotary part of the scores is not scaled", "rotary_factor"),
        ("the content part of the scores is not scaled", "content_factor"),
    ):
        yield Mistake(
            kind="mla-scale",
            text=f"{text}, the rest is",
            predict=lambda inputs, name=name: evaluated(inputs, **{name: 1 / inputs.scale_value}),  # type: ignore[misc]
        )


def _of_another_token() -> Iterator[Mistake]:
    def moved(array: Array, by: int) -> Array:
        return np.roll(array, by, axis=1)

    for word, by in (("the token before it", 1), ("the next token", -1)):
        for name, change in (
            (
                "the rotary key",
                lambda i, by=by: evaluated(i, key_rotary=moved(i.key_rotary, by)[:, None]),
            ),
            (
                "the content key",
                lambda i, by=by: evaluated(i, keys=per_head(moved(i.latent, by), i.w_uk)),
            ),
            (
                "the value",
                lambda i, by=by: evaluated(i, values=per_head(moved(i.latent, by), i.w_uv)),
            ),
        ):
            text = f"a token is read with {name} of {word}"
            yield Mistake(kind="cache-position", text=text, predict=change)


def _of_another_head() -> Iterator[Mistake]:
    for name in ("query_rotary", "query_content"):
        yield Mistake(
            kind="head-mapping",
            text=f"{name} of head 0 is used for every head",
            predict=lambda inputs, name=name: _exact(
                inputs.but(**{name: _first_head(inputs, name)})
            ),  # type: ignore[misc]
        )
    for name in ("w_uk", "w_uv"):
        yield Mistake(
            kind="mla-absorption",
            text=f"{name.upper()} is read as "
            "[rows, heads, latent_dim], expected [heads, rows, latent_dim]",
            predict=lambda inputs, name=name: _exact(
                inputs.but(**{name: _rows_first(inputs, name)})
            ),  # type: ignore[misc]
        )


def _of_another_row() -> Iterator[Mistake]:
    def first(array: Array) -> Array:
        return np.broadcast_to(array[:1], array.shape)

    changes: dict[str, Callable[[LatentInputs], Array]] = {
        "the rotary keys": lambda i: evaluated(i, key_rotary=first(i.key_rotary)[:, None]),
        "the content keys": lambda i: evaluated(i, keys=per_head(first(i.latent), i.w_uk)),
        "the values": lambda i: evaluated(i, values=per_head(first(i.latent), i.w_uv)),
    }
    for name, predict in changes.items():
        text = f"every batch row reads {name} of batch row 0"
        yield Mistake(kind="broadcasting", text=text, predict=predict)


def _first_head(inputs: LatentInputs, name: str) -> Array:
    query: Array = getattr(inputs, name)
    return np.broadcast_to(query[:, :1], query.shape)


def _rows_first(inputs: LatentInputs, name: str) -> Array:
    weights: Array = getattr(inputs, name)
    heads, rows, latent = weights.shape
    return weights.reshape(rows, heads, latent).swapaxes(0, 1)


def _normed(inputs: LatentInputs, epsilon: float) -> Array:
    latent = inputs.latent
    return np.asarray(latent / np.sqrt((latent**2).mean(axis=-1, keepdims=True) + epsilon))


def _without_tail(inputs: LatentInputs, tile: int) -> Array:
    kv_len = inputs.latent.shape[1]
    if kv_len <= tile or kv_len % tile == 0:
        return evaluated(inputs)
    read = np.arange(kv_len) < kv_len // tile * tile
    return evaluated(inputs, visible=inputs.visible & read)
