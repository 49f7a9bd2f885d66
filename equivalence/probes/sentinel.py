"""What stands for minus infinity at a hidden key: -inf, or a finite number, and which."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from equivalence.dtypes import Array, format_of
from equivalence.probes.asking import Asker, probe

KNOWN: Final = (1e2, 1e3, 1e4, 65504.0, 1e5, 1e6, 1e9, 1e10, 2.0**32, 1e30, 3.3895e38, 3.4028e38)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentinel:
    """The score of a hidden key: ``value`` is -inf, or the finite number that was found.

    beyond: no finite number was seen down to minus this.
    """

    value: float
    beyond: float


@probe
def mask_constant(asker: Asker) -> Sentinel:
    """Rows whose visible key scores -S, for a grid of S, and a hidden key that scores 0.

    The hidden key wins once -S falls below the sentinel, whether that is added or filled in. Two
    calls where it is -inf, four to place a finite one within 0.1%.
    """
    asker.need("bool" in asker.domain.masks, "the target takes no bool mask")
    highest = min(1e30, format_of(asker.dtype).max_finite / 4)
    low, high = 16.0, highest
    if not _hidden_wins(asker, np.full(8, high)).all():
        return Sentinel(value=-np.inf, beyond=high)
    for _ in range(3):
        grid = np.geomspace(low, high, 16)
        wins = _hidden_wins(asker, grid)
        if wins.all() or not wins.any():
            break
        first = int(np.argmax(wins))
        low, high = grid[max(first - 1, 0)], grid[first]
    found = float(np.sqrt(low * high))
    near = [known for known in KNOWN if abs(known / found - 1) < 0.02]
    return Sentinel(value=-(near[0] if near else found), beyond=highest)


def _hidden_wins(asker: Asker, scores: Array) -> Array:
    """For each S, whether a hidden key outweighs a visible one that scores -S."""
    shape = asker.shape(kv_len=2)
    query, key = np.zeros((*shape.query[:2], len(scores), shape.head_dim)), np.zeros(shape.key)
    product = np.sqrt(shape.head_dim) * scores
    part = 2.0 ** np.floor(np.log2(product) / 2)  # both factors stay far from the limits
    query[0, 0, :, 0] = product / part.max()
    key[0, 0, 0, 0] = -part.max()
    value = np.zeros(shape.value)
    value[0, 0, 1:] = 1.0
    mask = (np.arange(shape.kv_len) == 0)[None, None, None]
    output = asker.ask_rows(query, key, value, mask=mask)
    return np.asarray(output[0, 0, :, 0] > 0.5)
