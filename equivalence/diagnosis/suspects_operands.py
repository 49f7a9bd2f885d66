"""Operands that take each other's place, and a softmax that is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from equivalence.diagnosis.imagining import Sight, Suspect, World, from_weights, full, rearranged
from equivalence.dtypes import Array
from equivalence.inputs import AttentionInputs
from equivalence.reference import attention


def operands(sight: Sight) -> Iterator[Suspect]:
    """Another tensor, or none, in the place of query, key or value."""
    kind = "wrong-operand"
    swaps: list[tuple[str, Callable[..., object], int]] = [
        ("the keys are used as values", lambda i: i.but(value=_fit(i.key, i.value)), 4),
        ("the values are used as keys", lambda i: i.but(key=_fit(i.value, i.key)), 4),
        ("keys and values are swapped",
         lambda i: i.but(key=_fit(i.value, i.key), value=_fit(i.key, i.value)), 5),
        ("the queries are used as keys", _query_as_key, 5),
        ("query and key take no part: the output is the mean of the visible values",
         lambda i: i.but(query=np.zeros_like(i.query)), 4),
        ("the output is the mean of all values, visible or not",
         lambda i: from_weights(i, np.full(full(i, i.visible).shape, 1 / i.key.shape[2])), 5),
        ("the weights are not normalised: the softmax is missing its division", _unnormalised, 6),
        ("the scores are used as weights: the softmax is missing", _linear, 6),
        ("only the key with the largest score counts", _hard, 8),
        ("only the first key counts", lambda i: _only(i, 0), 8),
        ("only the last key counts", lambda i: _only(i, -1), 8),
        ("the output is the sum of the visible values", _summed, 9),
        ("the values run in reverse against the keys",
         lambda i: i.but(value=i.value[:, :, ::-1]), 9),
        ("the values are one key ahead of the keys",
         lambda i: i.but(value=np.roll(i.value, -1, axis=2)), 9),
        ("the values are one key behind the keys",
         lambda i: i.but(value=np.roll(i.value, 1, axis=2)), 9),
        ("the output is zero", lambda i: rearranged(i, np.zeros_like), 20),
        ("the output is negated", lambda i: i.but(value=-i.value), 9),
        ("each query row is answered by the row before it", lambda i: _moved_rows(i, 1), 10),
        ("each query row is answered by the row after it", lambda i: _moved_rows(i, -1), 10),
        ("every query row is answered by row 0", lambda i: _row_zero(i), 10),
    ]  # fmt: skip
    for sentence, imagine, cost in swaps:
        yield Suspect(kind=kind, sentence=sentence, imagine=imagine, cost=cost)  # type: ignore[arg-type]


def _fit(array: Array, like: Array) -> Array:
    if array.shape != like.shape:
        raise ValueError("shapes differ")
    return array


def _query_as_key(inputs: AttentionInputs) -> AttentionInputs:
    group = inputs.query.shape[1] // inputs.key.shape[1]
    return inputs.but(key=_fit(inputs.query[:, ::group], inputs.key))


def _unnormalised(inputs: AttentionInputs) -> World:
    exact = attention(inputs)
    top = exact.scores.max(axis=-1, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0.0)
    return from_weights(inputs, np.exp(exact.scores - top))


def _linear(inputs: AttentionInputs) -> World:
    exact = attention(inputs)
    return from_weights(inputs, np.where(exact.visible, exact.scores, 0.0))


def _hard(inputs: AttentionInputs) -> World:
    scores = attention(inputs).scores
    best = scores.argmax(axis=-1)
    return from_weights(inputs, np.eye(scores.shape[-1])[best])


def _only(inputs: AttentionInputs, key: int) -> World:
    weights = np.zeros(full(inputs, inputs.visible).shape)
    weights[..., key] = 1.0
    return from_weights(inputs, weights)


def _summed(inputs: AttentionInputs) -> World:
    return from_weights(inputs, full(inputs, inputs.visible).astype(np.float64))


def _moved_rows(inputs: AttentionInputs, by: int) -> World | None:
    if inputs.query.shape[2] < 2:
        return None
    return rearranged(inputs, lambda output: np.roll(output, by, axis=2))


def _row_zero(inputs: AttentionInputs) -> World | None:
    if inputs.query.shape[2] < 2:
        return None
    return rearranged(inputs, lambda output: np.broadcast_to(output[:, :, :1], output.shape))
