"""Which ways of lying in memory change the answer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from equivalence.dtypes import Array
from equivalence.probes.asking import Asker, NotAnswered, probe


@dataclass(frozen=True, slots=True, kw_only=True)
class Memories:
    """wrong: layouts whose answer differs from that of contiguous tensors. refused: with why."""

    tried: tuple[str, ...]
    wrong: tuple[str, ...]
    refused: tuple[tuple[str, str], ...]


@probe
def memories(asker: Asker) -> Memories:
    """One call for each layout, against one on contiguous tensors with the same numbers."""
    layouts = tuple(m for m in asker.domain.memories if m != "contiguous")
    asker.need(bool(layouts), "the target takes contiguous tensors only")
    shape = asker.shape(batch_size=2, num_kv_heads=2, group_size=2, q_len=3, kv_len=5)
    rng = np.random.default_rng(5)
    query = np.round(rng.normal(size=shape.query) * 8) / 4
    key = np.broadcast_to(np.round(rng.normal(size=shape.key) * 8)[:, :1] / 4, shape.key)
    value = np.broadcast_to(np.round(rng.normal(size=shape.value) * 8)[:, :1], shape.value)
    expected = asker.ask(query, key, value)
    wrong, refused = [], []
    for memory in layouts:
        found = _same(asker, query, key, value, expected, memory)
        if isinstance(found, NotAnswered):
            refused.append((memory, found.why))
        elif not found:
            wrong.append(memory)
    return Memories(tried=layouts, wrong=tuple(wrong), refused=tuple(refused))


@probe
def _same(
    asker: Asker, query: Array, key: Array, value: Array, expected: Array, memory: str
) -> bool:
    out = asker.ask(query, key, value, memory=memory)
    return bool(np.allclose(out, expected, rtol=0.03, atol=0.1, equal_nan=True))
