"""The reference with a known mistake built in: what a kernel that makes it would answer.

Each mistake is a public bug report re-read as arithmetic; ``Mistake.predict`` gives its output in
float64, so that a wrong answer can be recognised by number and not by resemblance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from equivalence.dtypes import Array
from equivalence.latent.inputs import LatentInputs
from equivalence.latent.reference import per_head


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """A diagnosis kind, the sentence that states it, and the output of a kernel that makes it.

    ``predict`` returns None where the mistake makes no sense for the sizes at hand.
    """

    kind: str
    text: str
    predict: Callable[[LatentInputs], Array | None]


def evaluated(
    inputs: LatentInputs,
    *,
    scale: float | None = None,
    rotary_factor: float = 1.0,
    content_factor: float = 1.0,
    query_rotary: Array | None = None,
    key_rotary: Array | None = None,
    keys: Array | None = None,
    values: Array | None = None,
    visible: Array | None = None,
    dots: Array | None = None,
) -> Array:
    """Latent attention in float64 with some pieces replaced: ``[B, H, Sq, e]``.

    dots ``[B, H, Sq, S]``: all products of queries and keys. keys ``[B, H, S, d]`` and values
    ``[B, H, S, e]`` of every head, key_rotary ``[B, H, S, dR]``.
    """
    keys = per_head(inputs.latent, inputs.w_uk) if keys is None else keys
    values = per_head(inputs.latent, inputs.w_uv) if values is None else values
    shared = inputs.key_rotary[:, None] if key_rotary is None else key_rotary
    turned = inputs.query_rotary if query_rotary is None else query_rotary
    seen = inputs.visible if visible is None else visible
    if dots is None:
        dots = content_factor * (inputs.query_content @ keys.swapaxes(-1, -2))
        dots = dots + rotary_factor * (turned @ shared.swapaxes(-1, -2))
    scores = np.where(seen, (inputs.scale_value if scale is None else scale) * dots, -np.inf)
    top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isfinite(top), top, 0.0))
    total = weights.sum(axis=-1, keepdims=True)
    return np.asarray((weights / np.where(total > 0, total, 1.0)) @ values)


def scales() -> Iterator[Mistake]:
    def of(text: str, factor: Callable[[int, int, int, int, float], float]) -> Mistake:
        def predict(inputs: LatentInputs) -> Array:
            d, rope = inputs.query_content.shape[-1], inputs.query_rotary.shape[-1]
            latent, v_dim = inputs.latent.shape[-1], inputs.w_uv.shape[1]
            return evaluated(inputs, scale=factor(d, rope, latent, v_dim, inputs.scale_value))

        return Mistake(
            kind="mla-scale", text=f"the scores are multiplied by {text}", predict=predict
        )

    expected = "; absorption changes the dot product's length, not its scale"
    yield of(
        "1/sqrt(latent_dim + rope_dim), expected 1/sqrt(head_dim + rope_dim)" + expected,
        lambda d, rope, latent, v_dim, scale: (latent + rope) ** -0.5,
    )
    yield of(
        "1/sqrt(latent_dim), expected 1/sqrt(head_dim + rope_dim)" + expected,
        lambda d, rope, latent, v_dim, scale: latent**-0.5,
    )
    yield of(
        "1/sqrt(head_dim), expected 1/sqrt(head_dim + rope_dim): the rotary part counts too",
        lambda d, rope, latent, v_dim, scale: d**-0.5,
    )
    yield of("1, as if they were not scaled", lambda d, rope, latent, v_dim, scale: 1.0)
    yield of("the scale twice", lambda d, rope, latent, v_dim, scale: scale * scale)
    yield of(
        "1/sqrt(value_head_dim), expected 1/sqrt(head_dim + rope_dim)",
        lambda d, rope, latent, v_dim, scale: v_dim**-0.5,
    )
    yield of(
        "1/sqrt(head_dim + rope_dim) whatever scale is asked for",
        lambda d, rope, latent, v_dim, scale: (d + rope) ** -0.5,
    )


def projections() -> Iterator[Mistake]:
    def of(text: str, predict: Callable[[LatentInputs], Array | None]) -> Mistake:
        return Mistake(kind="mla-absorption", text=text, predict=predict)

    def read_as_transposed(weights: Array) -> Array:
        heads, rows, columns = weights.shape
        return weights.reshape(heads, columns, rows).swapaxes(1, 2)

    def keys_from(change: Callable[[Array], Array]) -> Callable[[LatentInputs], Array]:
        return lambda inputs: evaluated(inputs, keys=per_head(inputs.latent, change(inputs.w_uk)))

    def values_from(change: Callable[[Array], Array]) -> Callable[[LatentInputs], Array]:
        return lambda inputs: evaluated(inputs, values=per_head(inputs.latent, change(inputs.w_uv)))

    for name, source in (("W_UK", keys_from), ("W_UV", values_from)):
        yield of(
            f"{name} is read as its transpose, [latent_dim, rows] in memory",
            source(read_as_transposed),
        )
        yield of(f"{name} of the next head is used", source(lambda w: np.roll(w, -1, axis=0)))
        yield of(f"{name} of the previous head is used", source(lambda w: np.roll(w, 1, axis=0)))
        yield of(
            f"{name} of head 0 is used for every head",
            source(lambda w: np.broadcast_to(w[:1], w.shape)),
        )
        yield of(f"{name} of the heads in reverse is used", source(lambda w: w[::-1]))
        yield of(
            f"{name} of the first half of the heads is used for the second half too",
            source(lambda w: w if len(w) % 2 else np.concatenate([w[: len(w) // 2]] * 2)),
        )
    yield of("the latent itself serves as value, without W_UV", _latent_as_value)
    yield of("the latent itself serves as key, without W_UK", _latent_as_key)
    yield of(
        "the content part of the scores is missing",
        lambda inputs: evaluated(inputs, content_factor=0.0),
    )


def _latent_as_value(inputs: LatentInputs) -> Array | None:
    width = inputs.w_uv.shape[1]
    if inputs.latent.shape[-1] < width:
        return None
    shape = (inputs.latent.shape[0], inputs.w_uv.shape[0], inputs.latent.shape[1], width)
    return evaluated(inputs, values=np.broadcast_to(inputs.latent[:, None, :, :width], shape))


def _latent_as_key(inputs: LatentInputs) -> Array | None:
    width = inputs.w_uk.shape[1]
    if inputs.latent.shape[-1] < width:
        return None
    shape = (inputs.latent.shape[0], inputs.w_uk.shape[0], inputs.latent.shape[1], width)
    return evaluated(inputs, keys=np.broadcast_to(inputs.latent[:, None, :, :width], shape))


def positions() -> Iterator[Mistake]:
    def seeing(
        change: Callable[[Array, Array, int], Array],
    ) -> Callable[[LatentInputs], Array]:
        def predict(inputs: LatentInputs) -> Array:
            q_len, kv_len = inputs.query_content.shape[2], inputs.latent.shape[1]
            query = np.arange(q_len)[:, None]
            visible = change(query, np.arange(kv_len)[None, :], kv_len - q_len)
            return evaluated(inputs, visible=np.broadcast_to(visible, (1, 1, q_len, kv_len)))

        return predict

    for kind, text, change in (
        (
            "causal-alignment",
            "causal is upper-left: query i sees tokens up to i; the cache before it counts too",
            lambda query, token, offset: token <= query,
        ),
        ("causal-alignment", "every query sees every token", lambda q, token, offset: token >= 0),
        (
            "causal-alignment",
            "a query does not see its own token",
            lambda query, token, offset: token < query + offset,
        ),
        (
            "causal-alignment",
            "a query sees the token after its own",
            lambda query, token, offset: token <= query + offset + 1,
        ),
        (
            "cache-position",
            "the first token of the cache is not read",
            lambda query, token, offset: (token <= query + offset) & (token > 0),
        ),
    ):
        yield Mistake(kind=kind, text=text, predict=seeing(change))

    def first_row(inputs: LatentInputs) -> Array:
        return evaluated(
            inputs.but(
                latent=np.broadcast_to(inputs.latent[:1], inputs.latent.shape),
                key_rotary=np.broadcast_to(inputs.key_rotary[:1], inputs.key_rotary.shape),
            )
        )

    yield Mistake(
        kind="broadcasting",
        text="every batch row reads the cache of batch row 0",
        predict=first_row,
    )
