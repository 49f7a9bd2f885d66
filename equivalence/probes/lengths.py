"""How ``kv_lengths`` cuts the keys of each batch row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from equivalence.probes.asking import Asker, NotAnswered, probe
from equivalence.probes.visibility import even_weights


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """given, and for each batch row the keys that its only query sees.

    causal_from: with a causal flag, whether the diagonal ends at each row's "length", at
    "kv_len", or at neither ("other").
    """

    given: tuple[int, ...]
    seen: tuple[tuple[int, ...], ...]
    causal_from: str | NotAnswered

    @property
    def right(self) -> bool:
        """Whether row b sees its first kv_lengths[b] keys."""
        return self.seen == tuple(tuple(range(n)) for n in self.given)


@probe
def kv_lengths(asker: Asker) -> Lengths:
    """Two calls: one query per batch row, and two queries with a causal flag."""
    asker.need(asker.domain.kv_lengths, "the target takes no kv_lengths")
    shape = asker.shape(batch_size=2, kv_len=6)
    given = (4, 3)[: shape.batch_size]
    weights = np.nan_to_num(even_weights(asker, shape, kv_lengths=np.asarray(given)))
    return Lengths(
        given=given,
        seen=tuple(tuple(int(j) for j in np.flatnonzero(row[0, -1] > 1e-6)) for row in weights),
        causal_from=_causal_from(asker, given),
    )


@probe
def _causal_from(asker: Asker, given: tuple[int, ...]) -> str:
    asker.need("lower_right" in asker.domain.causal, "the target takes no causal flag")
    shape = asker.shape(batch_size=len(given), q_len=2, kv_len=6)
    weights = np.nan_to_num(
        even_weights(asker, shape, kv_lengths=np.asarray(given), causal="lower_right")
    )
    key, query = np.arange(shape.kv_len)[None, :], np.arange(shape.q_len)[:, None]
    names = {"length": list(given), "kv_len": [shape.kv_len] * len(given)}
    for name, ends in names.items():
        expected = [
            (key <= query + end - shape.q_len) & (key < n)
            for n, end in zip(given, ends, strict=True)
        ]
        if all(((w[0] > 1e-6) == e).all() for w, e in zip(weights, expected, strict=True)):
            return name
    return "other"
