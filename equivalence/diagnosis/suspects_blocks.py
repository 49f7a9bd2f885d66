"""An online softmax over blocks of keys that forgets to rescale what it has summed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from equivalence.diagnosis.imagining import Sight, Suspect, World
from equivalence.inputs import AttentionInputs
from equivalence.reference import attention

BLOCKS = (1, 2, 3, 4, 8, 16, 32, 64, 128)


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
        yield Suspect(
            kind="lse-merge",
            sentence=f"blocks of {block} keys are averaged without their weights",
            imagine=partial(_averaged, block=block),
            cost=13,
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


def _averaged(inputs: AttentionInputs, *, block: int) -> World | None:
    exact = attention(inputs)
    if inputs.sinks is not None:
        return None
    weights = np.zeros_like(exact.probabilities)
    starts = range(0, weights.shape[-1], block)
    for start in starts:
        part = exact.probabilities[..., start : start + block]
        sums = part.sum(axis=-1, keepdims=True)
        weights[..., start : start + block] = part / np.where(sums > 0, sums, 1.0) / len(starts)
    value = inputs.value[:, inputs.kv_head_of]
    changed = replace(exact, probabilities=weights, output=np.matmul(weights, value))
    return World(inputs=inputs, exact=changed)
