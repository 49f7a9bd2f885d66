"""Read the weight that every query gives to every stored value, whoever it belongs to.

With all keys zero a correct kernel weighs the tokens that a query sees alike, and with one-hot
values each channel of the output is the weight of one slot. A few calls then show every slot that
is missing, that does not belong, or that counts for more or less than its share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from equivalence.dtypes import Array
from equivalence.piecewise import Piece, PiecewiseSubject

MOST_CALLS: Final = 256
CLEARLY: Final = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """The weights in one piece: ``[B, H, Sq, heads, places]``, as got and as expected.

    A slot is a key/value head at a place; places number everything else of the value tensor.
    """

    piece: Piece
    got: Array
    expected: Array


def read_weights(subject: PiecewiseSubject, inputs: Any) -> list[Weights] | None:
    """The weights in every piece; None where the target does not answer or has too many slots."""
    slots, width = inputs.value.shape[:-1], inputs.value.shape[-1]
    count = int(np.prod(slots))
    calls = -(-count // width)
    if not 0 < calls <= MOST_CALLS:
        return None
    parts: list[list[tuple[Array, Array]]] = [[] for _ in inputs.pieces]
    for start in range(0, count, width):
        value = np.zeros((count, width))
        chosen = np.arange(start, min(start + width, count))
        value[chosen, chosen - start] = 1.0
        probe = inputs.without_scores().but(value=value.reshape(*slots, width))
        outcome = subject.call_again(probe)
        if subject.unusable(probe, outcome) is not None:
            return None
        for part, piece in zip(parts, probe.pieces, strict=True):
            used = slice(0, len(chosen))
            part.append((piece.take(outcome.output)[..., used], piece.exact.output[..., used]))
    found = []
    for piece, part in zip(inputs.pieces, parts, strict=True):
        got, expected = (_by_head(list(side), inputs) for side in zip(*part, strict=True))
        found.append(Weights(piece=piece, got=got, expected=expected))
    return found


def _by_head(parts: list[Array], inputs: Any) -> Array:
    """``[B, H, Sq, slots]`` -> ``[B, H, Sq, heads, places]``."""
    flat = np.concatenate(parts, axis=-1)
    slots = inputs.value.shape[:-1]
    shaped = flat.reshape(*flat.shape[:3], *slots)
    shaped = np.moveaxis(shaped, 3 + inputs.head_axis, 3)
    return np.asarray(shaped.reshape(*flat.shape[:3], slots[inputs.head_axis], -1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Odd:
    """What is wrong with the weights of one query.

    row, head, query: where. heads: other key/value heads that it reads. missing, extra: places
    that it should see and does not, and the other way round. uneven: it sees the right places,
    and weighs them differently. total: the sum of all its weights.
    """

    piece: Piece
    row: int
    head: int
    query: int
    heads: tuple[int, ...]
    missing: tuple[int, ...]
    extra: tuple[int, ...]
    uneven: bool
    total: float
    got: Array
    expected: Array


def first_odd(found: list[Weights]) -> Odd | None:
    """The first query whose weights are not those expected; None where all are right."""
    for weights in found:
        seen = weights.piece.exact.seen
        with np.errstate(invalid="ignore"):
            share = 1.0 / np.maximum(seen, 1)[..., None, None]
            wrong = ~(np.abs(weights.got - weights.expected) <= 0.1 * share)
        wrong &= (seen > 0)[..., None, None]
        if not wrong.any():
            continue
        row, head, query = (int(i) for i in np.argwhere(wrong.any(axis=(3, 4)))[0])
        return _odd(weights, row, head, query)
    return None


def _odd(weights: Weights, row: int, head: int, query: int) -> Odd:
    got, expected = weights.got[row, head, query], weights.expected[row, head, query]
    own = int(weights.piece.inputs.kv_head_of[head])
    least = CLEARLY / max(1, int(weights.piece.exact.seen[row, head, query]))
    there, wanted = ~(np.abs(got) <= least), expected > 0
    others = np.flatnonzero(there.any(axis=1))
    missing = np.flatnonzero(wanted[own] & ~there[own])
    extra = np.flatnonzero(there[own] & ~wanted[own])
    heads = tuple(int(i) for i in others if i != own)
    return Odd(
        piece=weights.piece,
        row=row,
        head=head,
        query=query,
        heads=heads,
        missing=tuple(int(i) for i in missing),
        extra=tuple(int(i) for i in extra),
        uneven=not heads and not len(missing) and not len(extra),
        total=float(got.sum()),
        got=got[own],
        expected=expected[own],
    )
