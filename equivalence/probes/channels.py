"""Which channels of query and key take part in a score, and which channels of value come back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from equivalence.probes.asking import Asker, probe
from equivalence.probes.heads import PEAK_KEY, PEAK_QUERY


@dataclass(frozen=True, slots=True, kw_only=True)
class Channels:
    """silent: channels of query and key that change no score. moved: value channels that come
    back elsewhere or not at all.
    """

    head_dim: int
    silent: tuple[int, ...]
    moved: tuple[int, ...]


@probe
def channels(asker: Asker, *, head_dim: int | None = None) -> Channels:
    """Two calls at the largest head_dim up to 128: one query row a channel, numbered values."""
    known = asker.domain.head_dims
    wanted = head_dim or (max((d for d in known if d <= 128), default=min(known)) if known else 80)
    shape = asker.shape(head_dim=wanted, kv_len=2)
    dims = shape.head_dim
    silent: list[int] = []
    step = 1 if asker.one_row_only else min(64, dims)
    query = np.broadcast_to(np.eye(dims) * PEAK_QUERY, (*shape.query[:2], dims, dims))
    key = np.zeros(shape.key)
    key[:, :, 0] = PEAK_KEY
    value = np.zeros(shape.value)
    value[:, :, 0] = 1.0
    # Row by row, a call each: the first, a middle and the last channel must do.
    rows = sorted({0, dims // 2, dims - 1}) if step == 1 else list(range(dims))
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        out = asker.ask_rows(query[:, :, part], key, value)[0, 0, :, 0]
        silent += [row for row, got in zip(part, out, strict=True) if not got > 0.75]
    numbers = np.arange(shape.value_head_dim) % 200 + 1.0
    value = np.broadcast_to(numbers, shape.value)
    out = asker.ask_rows(np.zeros((*shape.query[:2], 1, dims)), key, value)[0, 0, -1]
    moved = np.flatnonzero(~(np.abs(out - numbers) <= 0.45))
    return Channels(
        head_dim=dims, silent=tuple(silent), moved=tuple(int(channel) for channel in moved)
    )
