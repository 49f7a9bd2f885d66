"""What a row that sees no key holds, however it came to see none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from equivalence.dtypes import Array, format_of
from equivalence.probes.asking import Asker, NotAnswered, Shape, probe


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptyRows:
    """What such rows hold: "zeros", "nan", "uniform" (the mean of all values), "finite".

    by: the way in which they came about ("bool mask", "float mask", "causal", "kv_lengths",
    "no keys") and what they then hold, or why that was not answered. finite_minimum: what rows
    hold whose mask is the lowest finite number at every key ("uniform" in exact arithmetic).
    """

    by: tuple[tuple[str, str | NotAnswered], ...]
    finite_minimum: str | NotAnswered

    @property
    def policy(self) -> str:
        """The one thing that such rows hold, "mixed" if it differs, "unknown" if unasked."""
        found = {held for _, held in self.by if isinstance(held, str)}
        return "unknown" if not found else found.pop() if len(found) == 1 else "mixed"


@probe
def empty_rows(asker: Asker) -> EmptyRows:
    """One call for each way to leave a query without keys."""
    domain = asker.domain
    shape = asker.shape(q_len=2, kv_len=3)
    rows = shape.q_len if "q" in domain.mask_axes else 1
    none = np.ones((1, 1, rows, shape.kv_len), bool)
    none[:, :, 0] = False
    additive = np.where(none, 0.0, -np.inf)
    lowest = np.where(none, 0.0, -format_of(asker.dtype).max_finite)
    ways: list[tuple[str, str | NotAnswered]] = []
    if "bool" in domain.masks:
        ways.append(("bool mask", _row(asker, shape, mask=none)))
    if "float" in domain.masks:
        ways.append(("float mask", _row(asker, shape, mask=additive)))
    if "lower_right" in domain.causal and domain.q_len[1] > 3:
        tall = asker.shape(q_len=4, kv_len=3)
        if tall.q_len > tall.kv_len:
            ways.append(("causal", _row(asker, tall, causal="lower_right")))
    if domain.kv_lengths:
        ways.append(("kv_lengths", _row(asker, shape, kv_lengths=np.asarray([0]))))
    if domain.kv_len[0] == 0:
        ways.append(("no keys", _row(asker, asker.shape(q_len=2, kv_len=0))))
    finite: str | NotAnswered = NotAnswered(why="the target takes no float mask")
    if "float" in domain.masks:
        finite = _row(asker, shape, mask=lowest)
    return EmptyRows(by=tuple(ways), finite_minimum=finite)


@probe
def _row(asker: Asker, shape: Shape, **options: Any) -> str:
    value = np.broadcast_to(np.arange(shape.kv_len)[None, None, :, None] + 1.0, shape.value)
    out = asker.ask(np.zeros(shape.query), np.zeros(shape.key), value, **options)
    return held_by(out[0, 0, 0], float(value[0, 0, :, 0].mean()) if shape.kv_len else 0.0)


def held_by(row: Array, mean: float) -> str:
    """The word for what a row holds."""
    if np.isnan(row).any():
        return "nan"
    if not row.any():
        return "zeros"
    if np.allclose(row, mean, rtol=0.02):
        return "uniform"
    return "finite" if np.isfinite(row).all() else "infinite"
