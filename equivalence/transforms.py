"""Cut, permute and refill the tensors of a call, so that the exact result is known to follow."""

from __future__ import annotations

from typing import Any

import numpy as np

from equivalence.dtypes import Array, rounded
from equivalence.inputs import AttentionInputs


def _along(array: Array | None, axis: int, index: Any) -> Array | None:
    """``array`` indexed along ``axis``, left alone where that axis broadcasts."""
    if array is None or array.shape[axis] == 1:
        return array
    taken: Array = np.take(array, index, axis=axis)
    return taken


def take_queries(inputs: AttentionInputs, index: Array) -> AttentionInputs:
    """Keep the query rows ``index``."""
    return inputs.but(
        query=np.take(inputs.query, index, axis=2), mask=_along(inputs.mask, 2, index)
    )


def take_keys(inputs: AttentionInputs, index: Array) -> AttentionInputs:
    """Keep the keys ``index``, in that order, with their values and mask columns."""
    mask = None if inputs.mask is None else np.take(inputs.mask, index, axis=3)
    return inputs.but(
        key=np.take(inputs.key, index, axis=2),
        value=np.take(inputs.value, index, axis=2),
        mask=mask,
    )


def take_batch(inputs: AttentionInputs, index: Array) -> AttentionInputs:
    """Keep the batch rows ``index``."""
    lengths = inputs.kv_lengths
    return inputs.but(
        query=inputs.query[index],
        key=inputs.key[index],
        value=inputs.value[index],
        mask=_along(inputs.mask, 0, index),
        kv_lengths=None if lengths is None else lengths[index],
    )


def take_heads(inputs: AttentionInputs, query_heads: Array, kv_heads: Array) -> AttentionInputs:
    """Reorder query heads and key/value heads; the map between them stays as it was."""
    return inputs.but(
        query=inputs.query[:, query_heads],
        key=inputs.key[:, kv_heads],
        value=inputs.value[:, kv_heads],
        mask=_along(inputs.mask, 1, query_heads),
        sinks=None if inputs.sinks is None else inputs.sinks[query_heads],
        alibi_slopes=None if inputs.alibi_slopes is None else inputs.alibi_slopes[query_heads],
    )


def refill_slots(
    inputs: AttentionInputs, slots: Array, *, seed: int, number: float | None = None
) -> AttentionInputs:
    """Overwrite keys and values at ``slots`` ``[B, Hkv, Skv]`` with noise, or with ``number``."""
    rng = np.random.default_rng([seed, 29])
    refilled = []
    for array in (inputs.key, inputs.value):
        filled = array.copy()
        if number is None:
            noise = 3.0 * rng.normal(size=(np.count_nonzero(slots), array.shape[-1]))
            filled[slots] = rounded(noise, inputs.dtype)
        else:
            filled[slots] = number
        refilled.append(filled)
    return inputs.but(key=refilled[0], value=refilled[1])


def unread_slots(inputs: AttentionInputs, visible: Array) -> Array:
    """Key/value slots that no query may see: bool ``[B, Hkv, Skv]``; ``visible`` is full rank."""
    seen_by_head: Array = np.asarray(visible.any(axis=2))  # [B, H, Skv]
    seen = np.zeros((visible.shape[0], inputs.key.shape[1], visible.shape[3]), bool)
    for head, kv_head in enumerate(inputs.kv_head_of):
        seen[:, kv_head] |= seen_by_head[:, head]
    return ~seen
