"""A mask misunderstood: ignored, inverted, a number, of another row or head, added too early."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from equivalence.diagnosis.imagining import (
    Sight,
    Suspect,
    World,
    from_scores,
    from_weights,
    full,
    transposed_fold,
)
from equivalence.dtypes import Array
from equivalence.inputs import AttentionInputs
from equivalence.reference import attention

Remask = Callable[[AttentionInputs, Array], Array | None]


def _remasked(inputs: AttentionInputs, *, remask: Remask | None) -> AttentionInputs | None:
    """The same call with another mask; None where the change says nothing."""
    if inputs.mask is None:
        return None
    if remask is None:
        return inputs.but(mask=None)
    mask = remask(inputs, inputs.mask)
    return None if mask is None else inputs.but(mask=mask)


def meaning(sight: Sight) -> Iterator[Suspect]:
    """What the numbers of the mask are taken to mean."""
    mask = sight.inputs.mask
    if mask is None:
        return
    kind = "mask-semantics"
    is_bool = mask.dtype == bool
    word = "bool" if is_bool else "float"

    def suspect(sentence: str, remask: Remask | None, cost: int) -> Suspect:
        return Suspect(
            kind=kind, sentence=sentence, imagine=partial(_remasked, remask=remask), cost=cost
        )

    yield suspect(f"the {word} mask is ignored", None, 2)
    if is_bool:
        yield suspect("True in the bool mask hides a key, expected to show it", lambda i, m: ~m, 2)
        yield suspect(
            "the bool mask is added to the scores as 0 and 1, expected to hide keys",
            lambda i, m: m.astype(np.float64), 2,
        )  # fmt: skip
        yield suspect(
            "the bool mask is inverted and added to the scores as 0 and 1",
            lambda i, m: (~m).astype(np.float64),
            6,
        )
        yield suspect("the bool mask is subtracted as 0 and 1", lambda i, m: -(~m).astype(float), 6)
        yield Suspect(
            kind=kind,
            sentence="hidden scores are set to 0, expected -inf",
            imagine=_scores_times_mask,
            cost=5,
        )
    else:
        hides = mask == -np.inf
        yield suspect("the float mask is read as bool: any number but 0 shows a key",
                      lambda i, m: m != 0, 5)  # fmt: skip
        yield suspect("the float mask is read as bool: any number but 0 hides a key",
                      lambda i, m: m == 0, 5)  # fmt: skip
        yield suspect("only -inf in the float mask counts; its other numbers are ignored",
                      lambda i, m: m > -np.inf, 4)  # fmt: skip
        yield suspect(
            "the float mask is added before the scale",
            lambda i, m: np.where(m == -np.inf, m, m * i.scale_value), 4,
        )  # fmt: skip
        yield suspect("the float mask is added twice", lambda i, m: 2 * m, 7)
        yield suspect("the float mask is subtracted", lambda i, m: np.where(m == -np.inf, m, -m), 7)
        if hides.any():
            yield suspect("-inf in the float mask hides nothing",
                          lambda i, m: np.where(m == -np.inf, 0.0, m), 5)  # fmt: skip
        for limit in (-1e2, -1e3, -1e4):
            yield suspect(
                f"numbers below {limit:g} in the float mask are clamped to it",
                partial(_clamped, limit=limit), 12,
            )  # fmt: skip
        yield suspect(
            "large negative numbers in the float mask hide a key, expected to be added",
            lambda i, m: np.where(m <= -1e3, -np.inf, m), 9,
        )  # fmt: skip
    yield Suspect(
        kind=kind,
        sentence="the mask is applied after the softmax, whose weights no longer add up to 1",
        imagine=_after_softmax,
        cost=5,
    )
    yield Suspect(
        kind=kind,
        sentence="mask and causal flag are joined by OR, expected AND",
        imagine=_joined_by_or,
        cost=6,
    )
    yield suspect(
        "the mask is read with queries and keys swapped",
        lambda i, m: m.swapaxes(2, 3) if m.shape[2] == m.shape[3] else None,
        6,
    )
    yield suspect("the mask is shifted by one key", lambda i, m: np.roll(m, 1, axis=3), 9)
    yield suspect("the mask is shifted back by one key", lambda i, m: np.roll(m, -1, axis=3), 9)
    yield suspect("each query gets the mask of the one after it", lambda i, m: _up(m, -1), 9)
    yield suspect("each query gets the mask of the one before it", lambda i, m: _up(m, 1), 9)
    for sentence, move in (("reversed along the keys", 3), ("reversed along the queries", 2)):
        yield suspect(f"the mask is {sentence}", partial(_flipped, axis=move), 10)


def _clamped(inputs: AttentionInputs, mask: Array, *, limit: float) -> Array:
    return np.maximum(mask, limit)


def _up(mask: Array, by: int) -> Array | None:
    return np.roll(mask, by, axis=2) if mask.shape[2] > 1 else None


def _flipped(inputs: AttentionInputs, mask: Array, *, axis: int) -> Array:
    return np.flip(mask, axis)


def _after_softmax(inputs: AttentionInputs) -> World | None:
    if inputs.mask is None:
        return None
    unmasked = attention(inputs.but(mask=None))
    keep = inputs.mask if inputs.mask.dtype == bool else inputs.mask > -np.inf
    return from_weights(inputs, unmasked.probabilities * full(inputs, keep))


def _scores_times_mask(inputs: AttentionInputs) -> World | None:
    if inputs.mask is None or inputs.mask.dtype != bool:
        return None
    unmasked = inputs.but(mask=None)
    exact = attention(unmasked)
    return from_scores(unmasked, np.where(full(inputs, inputs.mask), exact.scores, 0.0))


def _joined_by_or(inputs: AttentionInputs) -> AttentionInputs | None:
    if inputs.mask is None or inputs.mask.dtype != bool or inputs.causal is None:
        return None
    causal = inputs.but(mask=None).visible
    return inputs.but(mask=inputs.mask | causal, causal=None)


def axes(sight: Sight) -> Iterator[Suspect]:
    """Which slice of the mask a batch row or head is given."""
    inputs, mask = sight.inputs, sight.inputs.mask
    if mask is None:
        return
    batch_size, heads = inputs.query.shape[:2]

    def suspect(sentence: str, remask: Remask, cost: int) -> Suspect:
        return Suspect(
            kind="broadcasting",
            sentence=sentence,
            imagine=partial(_remasked, remask=remask),
            cost=cost,
        )

    if mask.shape[0] > 1:
        yield suspect("every batch row gets the mask of batch row 0", lambda i, m: m[:1], 4)
        yield suspect("every batch row gets the mask of the last one", lambda i, m: m[-1:], 6)
        yield suspect("batch rows get each other's mask", lambda i, m: np.roll(m, 1, axis=0), 9)
        if batch_size in (inputs.key.shape[1], heads):
            yield suspect(
                "the mask of batch row b is applied to kv head b: its batch axis is aligned "
                "with the heads",
                _batch_as_kv_head,
                4,
            )
            yield suspect(
                "the mask of batch row b is applied to query head b: its batch axis is aligned "
                "with the heads",
                _batch_as_head,
                4,
            )
        yield suspect(
            "the mask of batch row (b * num_heads + h) % batch_size is applied",
            lambda i, m: _flat_batch(i, m),
            8,
        )
    if mask.shape[1] > 1:
        group = heads // inputs.key.shape[1]
        yield suspect("every query head gets the mask of head 0", lambda i, m: m[:, :1], 4)
        yield suspect("every query head gets the mask of the last head", lambda i, m: m[:, -1:], 6)
        yield suspect(
            "every query head gets the mask of the first head in its group", _first_in_group, 5
        )
        yield suspect("query head h gets the mask of head h // group_size", _mask_of_kv_head, 6)
        yield suspect("query head h gets the mask of head h % num_kv_heads", _mask_modulo, 6)
        if group > 1:
            yield suspect(
                "the head axis of the mask is folded as (group, kv head), "
                "expected (kv head, group)",
                partial(_folded, by_group=True),
                5,
            )
            yield suspect(
                "the head axis of the mask is read back as (kv head, group) of a (group, kv head) "
                "fold",
                partial(_folded, by_group=False),
                6,
            )
        yield suspect("query heads get each other's mask", lambda i, m: np.roll(m, 1, axis=1), 9)
        yield suspect("query heads get each other's mask", lambda i, m: m[:, ::-1], 9)
    if mask.shape[2] > 1:
        yield suspect("every query gets the mask of query 0", lambda i, m: m[:, :, :1], 5)
        yield suspect("every query gets the mask of the last query", lambda i, m: m[:, :, -1:], 6)


def _batch_as_kv_head(inputs: AttentionInputs, mask: Array) -> Array | None:
    if mask.shape[0] != inputs.key.shape[1] or mask.shape[1] != 1:
        return None
    return mask.swapaxes(0, 1)[:, inputs.kv_head_of]


def _batch_as_head(inputs: AttentionInputs, mask: Array) -> Array | None:
    if mask.shape[0] != inputs.query.shape[1] or mask.shape[1] != 1:
        return None
    return mask.swapaxes(0, 1)


def _flat_batch(inputs: AttentionInputs, mask: Array) -> Array | None:
    batch_size, heads = inputs.query.shape[:2]
    if mask.shape[1] != 1:
        return None
    rows = (np.arange(batch_size * heads) % batch_size).reshape(batch_size, heads)
    picked: Array = mask[rows, 0]
    return picked


def _first_in_group(inputs: AttentionInputs, mask: Array) -> Array:
    group = inputs.query.shape[1] // inputs.key.shape[1]
    return mask[:, np.arange(inputs.query.shape[1]) // group * group]


def _mask_of_kv_head(inputs: AttentionInputs, mask: Array) -> Array:
    return mask[:, np.arange(inputs.query.shape[1]) // (mask.shape[1] // inputs.key.shape[1])]


def _mask_modulo(inputs: AttentionInputs, mask: Array) -> Array:
    return mask[:, np.arange(inputs.query.shape[1]) % inputs.key.shape[1]]


def _folded(inputs: AttentionInputs, mask: Array, *, by_group: bool) -> Array:
    return mask[:, transposed_fold(inputs, by_group=by_group)]
