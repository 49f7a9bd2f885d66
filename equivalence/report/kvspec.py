"""The tables of `equivalence kvspec`."""

from __future__ import annotations

from collections.abc import Sequence

from equivalence.accounting.answers import Answer
from equivalence.accounting.designs import Design
from equivalence.report.numbers import count
from equivalence.report.tables import Table


def times(ratio: float) -> str:
    """``4`` as ``4x``, ``7.111`` as ``7.11x``."""
    return f"{ratio:.2f}".rstrip("0").rstrip(".") + "x"


def binary(size: float) -> str:
    """Bytes as KiB, MiB or GiB, whichever reads best."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= scale:
            return f"{size / scale:,.2f}".rstrip("0").rstrip(".") + f" {unit}"
    return f"{size:,.0f} B"


def answers_table(answers: Sequence[Answer], *, storage: str, devices: int) -> Table:
    """A row for each model."""
    tokens = count(answers[0].tokens)
    headings: tuple[str, ...] = (
        "model", "layers", "heads", "kv heads", "head dim", "bytes/token", "below MHA",
        f"held/token at {tokens}", "a sequence",
    )  # fmt: skip
    memory = answers[0].fits is not None
    shared = devices > 1
    rows = []
    for one in answers:
        spec = one.spec
        row: tuple[str, ...] = (
            spec.name,
            str(spec.num_layers),
            str(spec.num_heads),
            spec.heads_text,
            spec.head_dim_text,
            count(one.bytes_per_token),
            times(spec.saving),
            count(round(one.held_per_token)),
            binary(one.sequence_bytes),
        )
        row += (times(one.replication),) if shared else ()
        row += (count(one.fits or 0),) if memory else ()
        rows.append(row)
    if shared:
        headings += ("kept in all",)
    if memory:
        headings += ("sequences",)
    where = f" on the busiest of {devices} devices" if shared else ""
    notes = [f"stored as {storage}{where}; bytes/token counts every layer at full length"]
    notes += [f"{one.spec.name}: {note}" for one in answers for note in one.spec.notes]
    return Table(
        headings=headings, rows=tuple(rows), right=frozenset(headings[1:]), notes=tuple(notes)
    )


def designs_table(designs: Sequence[Design]) -> Table:
    """A row for each design, the largest first."""
    rows = [
        (
            one.name,
            count(one.elements),
            f"{one.kv_heads:.2f}".rstrip("0").rstrip("."),
            times(one.smaller),
            "#" * max(1, round(40 * one.elements / designs[0].elements)),
        )
        for one in designs
    ]
    headings = ("design", "elements", "in kv heads", "below MHA", "")
    return Table(headings=headings, rows=tuple(rows), right=frozenset(headings[1:4]))
