"""Blocks of keys that are put together wrongly: not rescaled, or merged by wrong weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from equivalence.diagnosis.imagining import Sight, Suspect, World
from equivalence.dtypes import Array
from equivalence.inputs import AttentionInputs
from equivalence.reference import attention

LN2: Final = math.log(2.0)
BLOCKS: Final = (1, 2, 3, 4, 8, 16, 32, 64, 128)
SPLITS: Final = (2, 3, 4, 8)
# How slices are weighed, from their log-sum-exps and their maxima, as natural logarithms.
Weigh = Callable[[Array, Array], Array]
MERGES: Final[tuple[tuple[str, Weigh], ...]] = (
    ("averaged without their weights", lambda lse, top: np.where(np.isfinite(lse), 0.0, lse)),
    ("merged by a log-sum-exp in base 2 as if it were natural", lambda lse, top: lse / LN2),
    ("merged by powers of 2 of a natural log-sum-exp", lambda lse, top: lse * LN2),
    ("merged by their largest scores, without their sums", lambda lse, top: top),
)


def rescaling(sight: Sight) -> Iterator[Suspect]:
    """The accumulator, the sum, or both are not rescaled when the maximum rises."""
    kv_len = sight.inputs.key.shape[2]
    for block in (b for b in BLOCKS if b < kv_len):
        for cost, (what, output, total) in enumerate(
            (
                ("accumulator and sum are", True, True),
                ("the accumulator is", True, False),
                ("the sum is", False, True),
            )
        ):
            yield Suspect(
                kind="lse-merge",
                sentence=(
                    f"{what} not rescaled when a later block of {block} keys raises the maximum"
                ),
                imagine=partial(_unscaled, block=block, output=output, total=total),
                cost=10 + cost,
            )
        # Blocks of one key, merged in another base, are a softmax in that base: a scale.
        for cost, (how, weigh) in enumerate(MERGES if block > 1 else ()):
            yield Suspect(
                kind="lse-merge",
                sentence=f"blocks of {block} keys are {how}",
                imagine=partial(_merged, block=block, weigh=weigh),
                cost=13 + cost,
            )
        for cost, (what, uniform) in enumerate((("zeros", False), ("a mean of their own", True))):
            yield Suspect(
                kind="lse-merge",
                sentence=(
                    f"blocks of {block} keys that see nothing take part in the merge with a "
                    f"log-sum-exp of 0 and {what}"
                ),
                imagine=partial(_merged, block=block, weigh=_zero_if_empty, uniform=uniform),
                cost=17 + cost,
            )


def unseen_parts(sight: Sight) -> Iterator[Suspect]:
    """A part of the keys that a row does not see makes it NaN: -inf minus -inf, in a merge."""
    kv_len = sight.inputs.key.shape[2]
    if not np.isnan(sight.actual[sight.wrong]).all():
        return
    # A case is shrunk until a second block is needed, so the largest first block is the likely one.
    blocks = [b for b in BLOCKS if b < kv_len]
    parts = [(f"the first {_keys(b)}", b, True) for b in reversed(blocks)]
    parts += [(f"one of {n} equal parts", math.ceil(kv_len / n), False) for n in SPLITS]
    parts += [(f"one of the blocks of {_keys(b)}", b, False) for b in blocks]
    for what, size, only_first in parts:
        yield Suspect(
            kind="lse-merge",
            sentence=(
                f"a row that sees nothing of {what} is NaN: -inf minus -inf, where parts of the "
                "keys are put together"
            ),
            imagine=partial(_nan_where_unseen, size=size, only_first=only_first),
            cost=5,
        )


def _keys(count: int) -> str:
    return "key" if count == 1 else f"{count} keys"


def _nan_where_unseen(inputs: AttentionInputs, *, size: int, only_first: bool) -> World:
    exact = attention(inputs)
    starts = range(0, size if only_first else exact.visible.shape[-1], size)
    seen = [exact.visible[..., start : start + size].any(axis=-1) for start in starts]
    lost = ~np.logical_and.reduce(seen)
    return World(
        inputs=inputs,
        exact=replace(exact, output=np.where(lost[..., None], np.nan, exact.output)),
    )


def _unscaled(inputs: AttentionInputs, *, block: int, output: bool, total: bool) -> World | None:
    exact = attention(inputs)
    if inputs.sinks is not None:
        return None
    running = np.maximum.accumulate(exact.scores, axis=-1)
    last = np.minimum((np.arange(running.shape[-1]) // block + 1) * block, running.shape[-1]) - 1
    with np.errstate(invalid="ignore"):
        loose = np.where(exact.visible, np.exp(exact.scores - running[..., last]), 0.0)
        tight = np.where(exact.visible, np.exp(exact.scores - running[..., -1:]), 0.0)
    weights, shares = (loose if output else tight), (loose if total else tight)
    sums = shares.sum(axis=-1, keepdims=True)
    weights = weights / np.where(sums > 0, sums, 1.0)
    value = inputs.value[:, inputs.kv_head_of]
    changed = replace(exact, probabilities=weights, output=np.matmul(weights, value))
    return World(inputs=inputs, exact=changed)


def _zero_if_empty(lse: Array, top: Array) -> Array:
    return np.where(np.isfinite(lse), lse, 0.0)


def _merged(
    inputs: AttentionInputs, *, block: int, weigh: Weigh, uniform: bool = False
) -> World | None:
    """Each block by its own softmax, then all by ``weigh``; a block that sees nothing is 0.

    uniform: or the mean of its values.
    """
    exact = attention(inputs)
    if inputs.sinks is not None:
        return None
    parts, logits = [], []
    for start in range(0, exact.scores.shape[-1], block):
        scores = exact.scores[..., start : start + block]
        top = scores.max(axis=-1, keepdims=True)
        shares = np.exp(scores - np.where(np.isfinite(top), top, 0.0))
        total = shares.sum(axis=-1, keepdims=True)
        empty = 1.0 / scores.shape[-1] if uniform else 0.0
        parts.append(np.where(total > 0, shares / np.where(total > 0, total, 1.0), empty))
        with np.errstate(divide="ignore"):
            logits.append(weigh(np.log(total) + top, top))
    stacked = np.concatenate(logits, axis=-1)
    highest = stacked.max(axis=-1, keepdims=True)
    merge = np.exp(stacked - np.where(np.isfinite(highest), highest, 0.0))
    sums = merge.sum(axis=-1, keepdims=True)
    merge = merge / np.where(sums > 0, sums, 1.0)
    weights = np.concatenate(
        [part * merge[..., i : i + 1] for i, part in enumerate(parts)], axis=-1
    )
    value = inputs.value[:, inputs.kv_head_of]
    changed = replace(exact, probabilities=weights, output=np.matmul(weights, value))
    return World(inputs=inputs, exact=changed)
