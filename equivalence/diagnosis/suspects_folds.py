"""Query heads folded into the query axis, and rows then counted along the folded axis.

A group of query heads that shares a key/value head is computed as one tall matrix: row f holds
query r of head i of the group, with f = i * q_len + r, or f = r * group_size + i. A causal mask, a
window or a mask that takes f for r, or the one order for the other, is right wherever one query or
one head is asked alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from equivalence.diagnosis.imagining import Sight, Suspect, with_visible
from equivalence.diagnosis.suspects_visibility import parts_of
from equivalence.dtypes import Array
from equivalence.inputs import AttentionInputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """A row that is counted wrongly.

    words: as which query a row is masked. row: (head in its group, query, group_size, q_len) ->
    that query. beyond: whether it may lie beyond the last one; then ``ends`` says that the last of
    the folded rows, not of the queries, is taken to end at the last key.
    """

    words: str
    row: Callable[[Array, Array, int, int], Array]
    beyond: bool = False
    ends: bool = False
    cost: int = 7


FOLDS: Final = (
    Fold(words="i * q_len + r", row=lambda i, r, n, q: i * q + r, beyond=True),
    Fold(words="r * group_size + i", row=lambda i, r, n, q: r * n + i, beyond=True),
    Fold(
        words="i * q_len + r of group_size * q_len",
        row=lambda i, r, n, q: i * q + r,
        beyond=True,
        ends=True,
    ),
    Fold(
        words="r * group_size + i of group_size * q_len",
        row=lambda i, r, n, q: r * n + i,
        beyond=True,
        ends=True,
    ),
    Fold(words="(i * q_len + r) // group_size", row=lambda i, r, n, q: (i * q + r) // n, cost=6),
    Fold(words="(r * group_size + i) % q_len", row=lambda i, r, n, q: (r * n + i) % q, cost=6),
)
# Of a single query, both orders are one.
FOLDS_OF_A_STEP: Final = (
    Fold(words="i of group_size", row=lambda i, r, n, q: i, beyond=True, ends=True),
)


def rows(sight: Sight) -> Iterator[Suspect]:
    """Rows of the causal mask, of the window, or of the mask, counted along a folded axis."""
    inputs = sight.inputs
    heads, kv_heads, q_len = inputs.query.shape[1], inputs.key.shape[1], inputs.query.shape[2]
    if heads == kv_heads or heads % kv_heads:
        return
    asked = {
        "causal-alignment": (inputs.causal is not None, "the causal mask"),
        "window": (inputs.band is not None, "the window"),
        "mask-semantics": (inputs.mask is not None and inputs.mask.shape[2] > 1, "the mask"),
    }
    for kind, (used, what) in asked.items():
        folds = FOLDS if q_len > 1 else FOLDS_OF_A_STEP
        for fold in folds if used else ():
            if kind == "mask-semantics" and fold.beyond:
                continue
            yield Suspect(
                kind=kind,
                sentence=(
                    f"{what} counts rows of query heads folded into the query axis: "
                    f"query r of head i in its group is masked as query {fold.words}, expected r"
                ),
                imagine=partial(_folded, kind=kind, fold=fold),
                cost=fold.cost,
            )


def _folded(inputs: AttentionInputs, *, kind: str, fold: Fold) -> AttentionInputs | None:
    heads, kv_heads, q_len = inputs.query.shape[1], inputs.key.shape[1], inputs.query.shape[2]
    if heads % kv_heads:
        return None
    group_size = heads // kv_heads
    head, query = np.arange(heads)[:, None] % group_size, np.arange(q_len)[None, :]
    row = fold.row(head, query, group_size, q_len)  # [H, Sq]
    if kind == "mask-semantics":
        mask = inputs.mask
        if mask is None or mask.shape[2] == 1:
            return None
        mask = np.broadcast_to(mask, (mask.shape[0], heads, *mask.shape[2:]))
        return inputs.but(mask=np.take_along_axis(mask, row[None, :, :, None], axis=2))
    parts = parts_of(inputs)
    ends = q_len * group_size if fold.ends else q_len
    upper_left = row[None, :, :, None]
    diagonal = upper_left + (parts.length - ends)
    changed: dict[str, Array] = {}
    if inputs.causal is not None:
        corner = upper_left if inputs.causal == "upper_left" and kind != "window" else diagonal
        changed["causal"] = parts.key <= corner if kind == "causal-alignment" else parts.causal
    if inputs.band is not None and kind == "window":
        left, right = inputs.band
        changed["left"] = parts.key >= diagonal - left if left >= 0 else parts.left
        changed["right"] = parts.key <= diagonal + right if right >= 0 else parts.right
    return with_visible(inputs, parts.visible(**changed))
