"""The tightest preset profile that what is seen is consistent with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from equivalence.bounds import allowance
from equivalence.compare import compare
from equivalence.inputs import AttentionInputs
from equivalence.probes.asking import Asker, probe
from equivalence.profiles import LOOSENING, PROFILES, Profile, profile_for
from equivalence.reference import attention

CANDIDATES: Final = {
    "float16": LOOSENING[1:],
    "bfloat16": LOOSENING[1:],
    "float32": ("f32", "split", "f16_inside", "bf16_inside"),
    "float64": ("f64", "single", "bf16_inside"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """profile: the tightest one within whose bound every answer was, None if none was.

    used: for each candidate, the worst error over its allowed error.
    """

    profile: str | None
    used: tuple[tuple[str, float], ...]


def candidate(name: str, dtype: str) -> Profile:
    """A preset, or ``f16_inside``: bf16_inside with the format of float16 (and of TF32)."""
    if name == "f16_inside":
        return replace(PROFILES["bf16_inside"], name=name, store="float16")
    return profile_for(dtype, name) if name == "split" else PROFILES[name]


@probe
def precision(asker: Asker, *, seed: int = 0) -> Precision:
    """Four calls whose outputs nearly cancel, so that what was rounded on the way is seen.

    One with equal scores (only P is rounded), one with scores whose products cancel, one with
    large scores, and one with many keys for the accumulator.
    """
    worst = dict.fromkeys(CANDIDATES[asker.dtype], 0.0)
    for number in range(4):
        inputs = _cancelling(asker, np.random.default_rng([seed, number]), number)
        outcome = asker.output(inputs)
        exact = attention(inputs)
        rows = exact.seen > 0
        for name in worst:
            allowed = allowance(inputs, exact, candidate(name, asker.dtype))
            facts = compare(outcome, exact.output, allowed, dtype=asker.dtype, rows=rows)
            worst[name] = max(worst[name], facts.used)
    fits = [name for name, used in worst.items() if used <= 1.0]
    return Precision(profile=fits[0] if fits else None, used=tuple(worst.items()))


def _cancelling(asker: Asker, rng: np.random.Generator, number: int) -> AttentionInputs:
    """Values that all but cancel for query row c in channel c."""
    kv_len = 64 if number == 3 else 6
    shape = asker.shape(q_len=8, kv_len=kv_len, head_dim=12)
    query, key = rng.normal(size=shape.query), rng.normal(size=shape.key)
    if number == 0:  # equal scores, so that only the probabilities are rounded
        query = np.zeros(shape.query)
    elif number == 1:  # products that cancel in the score, so that rounded operands are seen
        query, key = 0.25 * query, 0.25 * key
        half = shape.head_dim // 2
        key[..., half : 2 * half] = 6.0 + key[..., half : 2 * half]
        query[..., half : 2 * half] += 6.0 * (-1.0) ** np.arange(half)
    elif number == 2:
        query = 4.0 * query
    value = rng.normal(size=shape.value)
    plain = asker.inputs(query, key, value)
    weights = attention(plain).probabilities[0, 0]
    keys = np.arange(shape.kv_len)
    for row in range(min(shape.q_len, shape.value_head_dim)):
        likely = int(np.argmax(weights[row]))
        others = keys != likely
        if weights[row, likely] > 0:
            rest = float(weights[row, others] @ plain.value[0, 0, others, row])
            value[..., likely, row] = -rest / weights[row, likely]
    return asker.inputs(query, key, value)
