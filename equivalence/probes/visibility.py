"""Which keys each query sees, read off with one-hot values, and the rule behind it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from equivalence.dtypes import Array
from equivalence.probes.asking import Asker, Shape, probe


def attention_weights(
    asker: Asker, query: Array, key: Array, *, value_head_dim: int, **options: Any
) -> Array:
    """The weight of every key ``[B, H, Sq, Skv]``: values one-hot in the key, a call per chunk."""
    chunks = []
    batch_size, heads, kv_len = key.shape[:3]
    for start in range(0, kv_len, value_head_dim):
        width = min(value_head_dim, kv_len - start)
        value = np.zeros((batch_size, heads, kv_len, value_head_dim))
        value[:, :, range(start, start + width), range(width)] = 1.0
        chunks.append(asker.ask(query, key, value, **options)[..., :width])
    return np.concatenate(chunks, axis=3)


def even_weights(asker: Asker, shape: Shape, **options: Any) -> Array:
    """The weights ``[B, H, Sq, Skv]`` where every score is zero."""
    return attention_weights(
        asker,
        np.zeros(shape.query),
        np.zeros(shape.key),
        value_head_dim=shape.value_head_dim,
        **options,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """How often each key counts where all should count once.

    missing, duplicated: positions. total: the sum of the weights of a row (1 unless the softmax
    runs over another axis or over keys that are not there).
    """

    kv_len: int
    missing: tuple[int, ...]
    duplicated: tuple[int, ...]
    total: float


@probe
def keys_counted(asker: Asker, *, kv_len: int = 37) -> Keys:
    """Are there keys that never count, count twice, or were never given? One or two calls."""
    shape = asker.shape(q_len=3, kv_len=kv_len, head_dim=40)
    if asker.always_causal:
        shape = asker.shape(q_len=1, kv_len=kv_len, head_dim=40)
    weights = np.nan_to_num(even_weights(asker, shape)[0, 0, -1])
    usual = float(np.median(weights))
    scale = usual if usual > 0 else 1.0
    return Keys(
        kv_len=shape.kv_len,
        missing=tuple(int(j) for j in np.flatnonzero(weights < 0.25 * scale)),
        duplicated=tuple(int(j) for j in np.flatnonzero(weights > 1.5 * scale)),
        total=float(weights.sum()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CausalRule:
    """What the causal flag hides.

    corner: "lower_right", "upper_left", "ignored", "strict" (the diagonal is hidden),
    "lenient" (one future key is seen), "square only" (ignored where q_len != kv_len), or
    "unknown". seen: the keys that each query of a 3 x 5 call sees.
    """

    corner: str
    seen: tuple[tuple[int, ...], ...]


@probe
def causal_rule(asker: Asker) -> CausalRule:
    """Three calls: q_len below, above and equal to kv_len."""
    asker.need(any(c is not None for c in asker.domain.causal), "the target takes no causal flag")
    corner = next(c for c in asker.domain.causal if c is not None)
    seen = {}
    for q_len, kv_len in ((3, 5), (5, 3), (4, 4)):
        shape = asker.shape(q_len=q_len, kv_len=kv_len)
        if (shape.q_len, shape.kv_len) in seen:
            continue
        weights = even_weights(asker, shape, causal=corner)[0, 0]
        seen[shape.q_len, shape.kv_len] = _seen(weights)
    first = next(iter(seen.values()))
    rows = tuple(tuple(int(j) for j in np.flatnonzero(row)) for row in first)
    for name, rule in _causal_rules().items():
        if all(_alike(found, rule(*size)) for size, found in seen.items()):
            return CausalRule(corner=name, seen=rows)
    return CausalRule(corner="unknown", seen=rows)


def _causal_rules() -> dict[str, Any]:
    def lower(shift: int) -> Any:
        return lambda q, k: np.arange(k)[None, :] <= np.arange(q)[:, None] + (k - q) + shift

    return {
        "lower_right": lower(0),
        "upper_left": lambda q, k: np.arange(k)[None, :] <= np.arange(q)[:, None],
        "ignored": lambda q, k: np.ones((q, k), bool),
        "strict": lower(-1),
        "lenient": lower(1),
        "square only": lambda q, k: np.tri(q, k, dtype=bool) if q == k else np.ones((q, k), bool),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRule:
    """What a window keeps: ``left`` keys before a query, ``right`` after it (-1: no limit).

    given: as it was passed. tile: 1, or the number of keys by which it is rounded outwards.
    anchor: "lower_right" or "upper_left". ignored: everything that causality leaves is seen.
    """

    given: int | tuple[int, int]
    left: int | None
    right: int | None
    anchor: str
    tile: int = 1

    @property
    def ignored(self) -> bool:
        """Whether the window hides nothing."""
        return self.left == -1

    @property
    def expected(self) -> tuple[int, int]:
        """(left, right) by the contract: an int counts the query itself, and is causal."""
        return (self.given - 1, 0) if isinstance(self.given, int) else self.given


@probe
def window_rule(asker: Asker, given: int | tuple[int, int]) -> WindowRule:
    """One call with q_len below kv_len; the rule is the first that draws the same picture."""
    kind = "int" if isinstance(given, int) else "pair"
    asker.need(kind in asker.domain.windows, f"the target takes no {kind} window")
    shape = asker.shape(q_len=9, kv_len=12, head_dim=12)
    options: dict[str, Any] = {"window": given}
    if "window" in asker.domain.needs_causal:
        options["causal"] = next(c for c in asker.domain.causal if c is not None)
    options["band"] = (given - 1, 0) if isinstance(given, int) else given
    found = _seen(even_weights(asker, shape, **options)[0, 0])
    for left, right, anchor, tile, picture in _windows(
        shape.q_len, shape.kv_len, options["band"], causal="causal" in options
    ):
        if _alike(found, picture):
            return WindowRule(given=given, left=left, right=right, anchor=anchor, tile=tile)
    return WindowRule(given=given, left=None, right=None, anchor="unknown")


def _windows(
    q_len: int, kv_len: int, expected: tuple[int, int], *, causal: bool
) -> Iterator[tuple[int, int, str, int, Array]]:
    """(left, right, anchor, tile, picture), the expected ones first."""
    key = np.arange(kv_len)[None, :]
    sides = [-1, *range(6)]
    for anchor in ("lower_right", "upper_left"):
        diagonal = np.arange(q_len)[:, None] + (kv_len - q_len if anchor == "lower_right" else 0)
        for tile in (1, 2, 3, 4, 8):
            pairs = sorted(
                ((left, right) for left in sides for right in sides), key=lambda x: x != expected
            )
            for left, right in pairs:
                start = (diagonal - left) // tile * tile
                picture = (key >= start) if left >= 0 else np.ones((q_len, kv_len), bool)
                picture = picture & (key <= diagonal + right) if right >= 0 else picture
                if causal:
                    picture = picture & (key <= diagonal)
                yield left, right, anchor, tile, picture


def _seen(weights: Array) -> Array:
    """Keys with any weight; a row that is not a number, or is even over all keys, is empty."""
    numbers = np.nan_to_num(weights)
    return numbers > 1e-6


def _alike(found: Array, expected: Array) -> bool:
    """Equal pictures, but for rows that should see nothing: what those hold is another question."""
    rows = expected.any(axis=-1)
    return bool((found[rows] == expected[rows]).all())
