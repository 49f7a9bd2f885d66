"""Mistakes in where numbers lie: rotary channels, the shared rotary key, rows and columns of V."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from equivalence.dtypes import Array
from equivalence.latent.inputs import LatentInputs
from equivalence.latent.mistakes import Mistake, evaluated
from equivalence.latent.reference import per_head


def rotary_parts() -> Iterator[Mistake]:
    def of(kind: str, text: str, predict: Callable[[LatentInputs], Array | None]) -> Mistake:
        return Mistake(kind=kind, text=text, predict=predict)

    yield of(
        "mla-absorption",
        "the rotary part of the scores is missing",
        lambda inputs: evaluated(inputs, rotary_factor=0.0),
    )
    yield of(
        "mla-absorption",
        "the rotary key is repeated as if each head had its own: heads read other tokens' keys",
        lambda inputs: evaluated(inputs, key_rotary=_repeated(inputs, interleaved=True)),
    )
    yield of(
        "mla-absorption",
        "the rotary key is tiled as if each head had its own: heads read other tokens' keys",
        lambda inputs: evaluated(inputs, key_rotary=_repeated(inputs, interleaved=False)),
    )
    yield of(
        "mla-absorption",
        "the content part is rotated by its position; with a rotation between them, W_UQ and W_UK "
        "cannot be absorbed into one matrix",
        _content_turned,
    )
    # Reordering the keys alone is reordering the queries alone by the inverse order.
    for order, text in (
        (_evens_first, "the query's even channels come first, or the key's halves are paired"),
        (_paired, "the query's halves are paired, or the key's even channels come first"),
    ):

        def permuted(inputs: LatentInputs, order: Any = order) -> Array:
            index = order(inputs.key_rotary.shape[-1])
            return evaluated(inputs, query_rotary=inputs.query_rotary[..., index])

        yield of(
            "rotary-layout",
            f"the rotary channels of one side alone are reordered: {text}; "
            "queries and keys must be permuted alike",
            permuted,
        )
    yield of(
        "rotary-layout",
        "the second half of the rotary channels is not rotated: a partial rotary factor of 0.5 "
        "is applied to a rotary part that is rotated whole",
        _half_unrotated,
    )
    yield of("rotary-layout", "only the first half of the rotary channels is used", _half_used)


def fused_parts() -> Iterator[Mistake]:
    """Mistakes in how two parts lie side by side: content and rotary, keys and values."""
    for text, query_first in (
        ("the query has its rotary part first, the key its content part", True),
        ("the key has its rotary part first, the query its content part", False),
    ):
        for where, form in (("to latents", _absorbed_parts), ("by head", _expanded_parts)):

            def crossed(
                inputs: LatentInputs, query_first: bool = query_first, form: Any = form
            ) -> Array:
                query, key, rotary_key = form(inputs)
                rotary = np.broadcast_to(
                    rotary_key[:, None], (*key.shape[:3], rotary_key.shape[-1])
                )
                sides = [(inputs.query_rotary, query), (rotary, key)]
                first, second = sides if query_first else reversed(sides)
                ours = np.concatenate(first, axis=-1)
                theirs = np.concatenate(second[::-1], axis=-1)
                dots = ours @ theirs.swapaxes(-1, -2)
                return evaluated(inputs, dots=dots if query_first else dots.swapaxes(-1, -2))

            yield Mistake(
                kind="mla-absorption", text=f"in attention {where}, {text}", predict=crossed
            )
    for text, split in (
        ("W_UK and W_UV are taken from their fused weight as all keys and then all values, "
         "expected head by head", _split_by_half),
        ("W_UK and W_UV are taken from their fused weight head by head, expected all keys and then "
         "all values", _split_by_head),
    ):  # fmt: skip
        yield Mistake(
            kind="mla-absorption",
            text=text,
            predict=lambda inputs, split=split: evaluated(split(inputs)),  # type: ignore[misc]
        )


def _absorbed_parts(inputs: LatentInputs) -> tuple[Array, Array, Array]:
    """Query ``[B, H, Sq, c]``, key ``[B, 1, S, c]`` and the rotary key of attention to latents."""
    query = np.einsum("bhqd,hdc->bhqc", inputs.query_content, inputs.w_uk)
    return query, inputs.latent[:, None], inputs.key_rotary


def _expanded_parts(inputs: LatentInputs) -> tuple[Array, Array, Array]:
    """Query ``[B, H, Sq, d]``, key ``[B, H, S, d]`` and the rotary key of attention by head."""
    return inputs.query_content, per_head(inputs.latent, inputs.w_uk), inputs.key_rotary


def _split_by_half(inputs: LatentInputs) -> LatentInputs:
    heads, rows, latent = inputs.w_uk.shape
    fused = np.concatenate([inputs.w_uk, inputs.w_uv], axis=1).reshape(-1, latent)
    return inputs.but(
        w_uk=fused[: heads * rows].reshape(inputs.w_uk.shape),
        w_uv=fused[heads * rows :].reshape(inputs.w_uv.shape),
    )


def _split_by_head(inputs: LatentInputs) -> LatentInputs:
    heads, rows, latent = inputs.w_uk.shape
    fused = [w.reshape(-1, latent) for w in (inputs.w_uk, inputs.w_uv)]
    by_head = np.concatenate(fused).reshape(heads, -1, latent)
    return inputs.but(w_uk=by_head[:, :rows], w_uv=by_head[:, rows:])


def turned(x: Array, positions: Array) -> Array:
    """Every pair of channels rotated by its position (base 10,000, neighbours paired)."""
    width = x.shape[-1]
    angle = positions[:, None] * 10_000.0 ** (-np.arange(0, width, 2) / width)
    cos, sin, even, odd = np.cos(angle), np.sin(angle), x[..., 0::2], x[..., 1::2]
    return np.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1).reshape(x.shape)


def _content_turned(inputs: LatentInputs) -> Array | None:
    """Rotary on the content part: between W_UQ and W_UK stands a rotation by t - j."""
    q_len, kv_len = inputs.query_content.shape[2], inputs.latent.shape[1]
    if inputs.query_content.shape[-1] % 2:
        return None
    query = turned(inputs.query_content, np.arange(q_len) + (kv_len - q_len))
    keys = turned(per_head(inputs.latent, inputs.w_uk), np.arange(kv_len))
    return evaluated(inputs.but(query_content=query), keys=keys)


def _repeated(inputs: LatentInputs, *, interleaved: bool) -> Array:
    """Rotary keys ``[B, H, S, dR]`` of a buffer that was repeated along its tokens."""
    num_heads, kv_len = inputs.w_uk.shape[0], inputs.key_rotary.shape[1]
    flat = np.arange(num_heads * kv_len)
    if interleaved:  # repeat_interleave(H, dim=tokens), then viewed as [H, S]
        token = (flat // num_heads).reshape(num_heads, kv_len)
    else:  # repeat(H) along tokens, then viewed as [S, H]
        token = (flat % max(1, kv_len)).reshape(kv_len, num_heads).T
    return inputs.key_rotary[:, token]


def _evens_first(width: int) -> Array:
    return np.concatenate([np.arange(0, width, 2), np.arange(1, width, 2)])


def _paired(width: int) -> Array:
    return np.arange(width).reshape(2, -1).T.reshape(-1)


def _half_used(inputs: LatentInputs) -> Array:
    keep = np.arange(inputs.key_rotary.shape[-1]) < inputs.key_rotary.shape[-1] // 2
    return evaluated(inputs, query_rotary=inputs.query_rotary * keep)


def unrotated(rotary: Array, positions: Array) -> Array:
    """The second half of the rotary channels turned back by its angles (base 10,000, pairs)."""
    width = rotary.shape[-1]
    start = width // 4 * 2
    frequency = 10_000.0 ** (-np.arange(0, width, 2) / width)
    angle = -positions[:, None] * frequency[start // 2 :]
    cos, sin = np.cos(angle), np.sin(angle)
    pairs = rotary[..., start:].reshape(*rotary.shape[:-1], -1, 2)
    even, odd = pairs[..., 0], pairs[..., 1]
    turned = np.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1)
    shape = (*rotary.shape[:-1], width - start)
    return np.concatenate([rotary[..., :start], turned.reshape(shape)], axis=-1)


def _half_unrotated(inputs: LatentInputs) -> Array:
    q_len, kv_len = inputs.query_content.shape[2], inputs.latent.shape[1]
    keys = unrotated(inputs.key_rotary, np.arange(kv_len))
    queries = unrotated(inputs.query_rotary, np.arange(q_len) + (kv_len - q_len))
    return evaluated(inputs, query_rotary=queries, key_rotary=keys[:, None])


def value_addresses() -> Iterator[Mistake]:
    for name, widths in (("expanded", _expanded_widths), ("absorbed", _absorbed_widths)):

        def stepped(inputs: LatentInputs, widths: Any = widths) -> Array | None:
            key_width, value_width = widths(inputs)
            token = np.arange(inputs.latent.shape[1])
            moved = token // key_width * value_width + token % key_width
            values = per_head(inputs.latent, inputs.w_uv)
            inside = moved < inputs.latent.shape[1]
            rows = values[:, :, np.minimum(moved, inputs.latent.shape[1] - 1)]
            return evaluated(inputs, values=np.where(inside[:, None], rows, 0.0))

        yield Mistake(
            kind="mla-absorption",
            text=f"value rows step by the value width while key rows step by the key width "
            f"({name} widths): they part after the first block",
            predict=stepped,
        )

    def over_read(inputs: LatentInputs) -> Array:
        heads, v_dim = inputs.w_uv.shape[:2]
        key_width = inputs.w_uk.shape[1] + inputs.key_rotary.shape[-1]
        column = np.arange(heads)[:, None] * key_width + np.arange(v_dim)
        flat = per_head(inputs.latent, inputs.w_uv.reshape(1, heads * v_dim, -1))[:, 0]
        values = np.moveaxis(flat[..., column % (heads * v_dim)], 1, 2)
        return evaluated(inputs, values=values)

    yield Mistake(
        kind="mla-absorption",
        text="value tiles are as wide as keys: the values of a head start in another head's",
        predict=over_read,
    )


def _expanded_widths(inputs: LatentInputs) -> tuple[int, int]:
    return inputs.w_uk.shape[1] + inputs.key_rotary.shape[-1], inputs.w_uv.shape[1]


def _absorbed_widths(inputs: LatentInputs) -> tuple[int, int]:
    return inputs.latent.shape[-1] + inputs.key_rotary.shape[-1], inputs.latent.shape[-1]
