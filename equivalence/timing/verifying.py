"""Judge an answer on the very tensors that are timed: float64 and the error bound, head by head.

The queries that read one key/value head are the rows of one call with one head, so that nothing
is repeated in float64, and only one head of the cache is held in it at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from equivalence.bounds import Allowance, allowance
from equivalence.compare import Comparison, compare
from equivalence.dtypes import Array
from equivalence.inputs import AttentionInputs
from equivalence.profiles import Profile, profile_for
from equivalence.reference import Attention, attention

ROWS: Final = 64  # query rows that are judged at once under a causal mask


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Whether an answer is within its bound, the worst part used, and what is wrong otherwise.

    held: None where the bound is so wide that most of the answer could be anything.
    """

    held: bool | None
    used: float = 0.0
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """Some query rows of one key/value head: where they stand in the output, and their truth."""

    batch: int
    heads: slice
    rows: slice
    inputs: AttentionInputs
    exact: Attention


def judged(
    answers: Mapping[str, tuple[Array | None, str | None]],
    operands: Mapping[str, Array],
    dtype: str,
    *,
    causal: bool,
) -> dict[str, Judged]:
    """Compare answers ``[B, H, Sq, Dv]`` with float64 attention, each under its declared profile.

    answers: name -> (output, or None for no array; the profile that its author declares).
    """
    shape = (*operands["query"].shape[:3], operands["value"].shape[3])
    found = {name: _Tally(profile_for(dtype, declared)) for name, (_, declared) in answers.items()}
    for name, (output, _) in answers.items():
        if output is None or output.shape != shape:
            got = "no array" if output is None else f"shape {list(output.shape)}"
            found[name].why = f"returned {got}, expected {list(shape)}"
    for part in _parts(operands, dtype, causal):
        bounds: dict[str, Allowance] = {}
        for name, (output, _) in answers.items():
            tally = found[name]
            if output is None or tally.why:
                continue
            if tally.profile.name not in bounds:
                bounds[tally.profile.name] = allowance(part.inputs, part.exact, tally.profile)
            actual = output[part.batch, part.heads, part.rows].reshape(1, 1, -1, shape[3])
            bound = bounds[tally.profile.name]
            tally.add(compare(actual, part.exact.output, bound, dtype=dtype))
    return {name: tally.verdict(int(np.prod(shape))) for name, tally in found.items()}


@dataclass(slots=True)
class _Tally:
    """What the parts of one answer add up to."""

    profile: Profile
    why: str = ""
    worst: float = 0.0
    outside: int = 0
    parts: int = 0
    vacuous: int = 0

    def add(self, facts: Comparison) -> None:
        self.worst = max(self.worst, facts.used)
        self.outside += facts.outside
        self.parts += 1
        self.vacuous += facts.vacuous

    def verdict(self, total: int) -> Judged:
        why = self.why
        if not why and not self.outside and 2 * self.vacuous > self.parts:
            return Judged(held=None, why=vacuous(self.profile))
        if self.outside:
            why = (
                f"wrong answer: {self.outside:,} of {total:,} elements are outside the bound of "
                f"profile {self.profile.name}"
            )
        return Judged(held=not why, used=self.worst, why=why)


def vacuous(profile: Profile) -> str:
    """Why an answer that no bound contradicts is not said to be right."""
    return f"not verified: the bound of profile {profile.name} allows any answer at this size"


def _parts(operands: Mapping[str, Array], dtype: str, causal: bool) -> Iterator[_Part]:
    query, key, value = (operands[name] for name in ("query", "key", "value"))
    num_kv_heads, kv_len = key.shape[1:3]
    group_size, q_len = query.shape[1] // num_kv_heads, query.shape[2]
    for batch in range(query.shape[0]):
        for head in range(num_kv_heads):
            keys, values = (
                x[batch : batch + 1, head : head + 1].astype(np.float64) for x in (key, value)
            )
            first = head * group_size
            if not causal or q_len == 1:
                yield _part(
                    batch, slice(first, first + group_size), slice(None),
                    query[batch, first : first + group_size], keys, values, dtype, None,
                )  # fmt: skip
                continue
            for one in range(first, first + group_size):
                for start in range(0, q_len, ROWS):
                    rows = slice(start, min(start + ROWS, q_len))
                    seen = kv_len - q_len + rows.stop  # by the last of these rows
                    yield _part(
                        batch, slice(one, one + 1), rows, query[batch, one : one + 1, rows],
                        keys[:, :, :seen], values[:, :, :seen], dtype, "lower_right",
                    )  # fmt: skip


def _part(
    batch: int,
    heads: slice,
    rows: slice,
    query: Array,
    key: Array,
    value: Array,
    dtype: str,
    causal: str | None,
) -> _Part:
    inputs = AttentionInputs(
        query=query.astype(np.float64).reshape(1, 1, -1, query.shape[-1]),
        key=key,
        value=value,
        kv_head_of=np.zeros(1, np.int64),
        dtype=dtype,
        causal=causal,
    )
    exact = attention(inputs)
    return _Part(batch=batch, heads=heads, rows=rows, inputs=inputs, exact=exact)
