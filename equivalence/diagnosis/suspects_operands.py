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
        ("queries, keys and values are read from rows packed by key/value head as if all queries "
         "came first", lambda i: _split_as(i, packed_by_group=True), 9),
        ("queries are read from rows packed by key/value head as if all queries came first",
         lambda i: _split_as(i, packed_by_group=True).but(key=i.key, value=i.value), 9),
        ("queries, keys and values are read as if packed by key/value head, but all queries "
         "come first", lambda i: _split_as(i, packed_by_group=False), 9),
        *_normalised(),
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


def _split_as(inputs: AttentionInputs, *, packed_by_group: bool) -> AttentionInputs:
    """Rows of a fused projection, packed in one order and split in the other."""
    query, key, value = inputs.query, inputs.key, inputs.value
    batch_size, heads, length, width = query.shape
    kv_heads = key.shape[1]
    group = heads // kv_heads
    by_group = (batch_size, kv_heads, group + 2, length, width)
    if packed_by_group:
        grouped = query.reshape(batch_size, kv_heads, group, length, width)
        parts = (grouped, key[:, :, None], value[:, :, None])
        rows = np.concatenate(parts, axis=2).reshape(batch_size, -1, length, width)
        query, key, value = np.split(rows, (heads, heads + kv_heads), axis=1)
    else:
        rows = np.concatenate((query, key, value), axis=1).reshape(by_group)
        query = rows[:, :, :group].reshape(query.shape)
        key, value = rows[:, :, group], rows[:, :, group + 1]
    return inputs.but(query=query, key=key, value=value)


def _normalised() -> Iterator[tuple[str, Callable[[AttentionInputs], AttentionInputs], int]]:
    """Operands that are divided by their length, or by their root mean square."""
    for norm, root_mean in (("its length", False), ("its root mean square", True)):
        for cost, names in enumerate((("query",), ("key",), ("query", "key"))):
            what = " and ".join(f"each {name}" for name in names)

            def imagine(
                inputs: AttentionInputs,
                names: tuple[str, ...] = names,
                root_mean: bool = root_mean,
            ) -> AttentionInputs:
                changed = {name: _unit(getattr(inputs, name), root_mean) for name in names}
                return inputs.but(**changed)

            yield (f"{what} is divided by {norm} first", imagine, 9 + cost)


def _unit(rows: Array, root_mean: bool) -> Array:
    length = np.linalg.norm(rows, axis=-1, keepdims=True)
    length = length / (rows.shape[-1] ** 0.5 if root_mean else 1.0)
    return np.asarray(rows / np.where(length > 0, length, 1.0))


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
