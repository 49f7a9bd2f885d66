"""The table of suspects: families of mistakes, in the order in which they are tried.

A new kind of target adds its own families with :func:`register`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from equivalence.diagnosis import (
    suspects_blocks,
    suspects_folds,
    suspects_heads,
    suspects_masks,
    suspects_memory,
    suspects_operands,
    suspects_scores,
    suspects_tails,
    suspects_visibility,
)
from equivalence.diagnosis.imagining import Family, Sight, Suspect

FAMILIES: Final[dict[str, list[Family]]] = {
    "attention": [
        suspects_heads.head_maps,
        suspects_visibility.causal,
        suspects_visibility.window,
        suspects_folds.rows,
        suspects_masks.meaning,
        suspects_masks.axes,
        suspects_scores.scales,
        suspects_scores.softcaps,
        suspects_scores.sinks,
        suspects_scores.alibis,
        suspects_visibility.lengths,
        suspects_operands.operands,
        suspects_heads.mixed_heads,
        suspects_heads.permuted_outputs,
        suspects_tails.channels,
        suspects_tails.keys,
        suspects_tails.rows,
        suspects_blocks.rescaling,
        suspects_blocks.unseen_parts,
        suspects_memory.layouts,
        suspects_memory.strides,
        suspects_heads.batch_rows,
    ]
}


def register(kind: str, family: Family) -> None:
    """Add a family of suspects for targets of ``kind``."""
    FAMILIES.setdefault(kind, []).append(family)


def suspects(sight: Sight, kind: str = "attention") -> Iterator[Suspect]:
    """Everyone under suspicion for what was seen."""
    for family in FAMILIES.get(kind, ()):
        yield from family(sight)
