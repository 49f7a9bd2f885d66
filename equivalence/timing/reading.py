"""A table in words: which formulations keep the saving, which undo it, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from equivalence.timing.results import NOISE, Row

KEEPS: Final = 0.6  # of the cache's ratio, as a power: a saving of 4 in bytes gives 2.3 in time


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """One formulation in one format, over its head counts, the most heads first.

    faster: KV heads -> how many times faster than with as many KV heads as query heads (or the
    most that were timed). smaller: KV heads -> how many times the cache is smaller.
    copying: the KV heads at which it writes the cache out again.
    """

    subject: str
    dtype: str
    most: int
    faster: Mapping[int, float]
    smaller: Mapping[int, float]
    copying: tuple[int, ...]

    @property
    def verdict(self) -> str:
        """ "keeps", "undoes" or "partly"; "" where fewer than two head counts have a time.

        Judged at the first step down from the most heads: below it, a small cache is read faster
        than a call costs, whatever the formulation.
        """
        if not self.faster:
            return ""
        step = max(self.faster)
        if self.faster[step] >= self.smaller[step] ** KEEPS:
            return "keeps"
        typical = sorted(self.faster.values())[(len(self.faster) - 1) // 2]
        return "undoes" if typical < NOISE else "partly"


def savings(rows: Sequence[Row]) -> list[Saving]:
    """What each formulation makes of fewer key/value heads, in the order of the rows."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.time is not None and "num_kv_heads" in row.sizes:
            found.setdefault((row.subject, row.dtype), []).append(row)
    return [_saving(subject, dtype, own) for (subject, dtype), own in found.items()]


def _saving(subject: str, dtype: str, rows: list[Row]) -> Saving:
    ordered = sorted(rows, key=lambda row: -row.sizes["num_kv_heads"])
    first = ordered[0]
    assert first.time is not None
    faster = {
        row.sizes["num_kv_heads"]: first.time.ratio(row.time)
        for row in ordered[1:]
        if row.time is not None
    }
    return Saving(
        subject=subject,
        dtype=dtype,
        most=first.sizes["num_kv_heads"],
        faster=faster,
        smaller={
            row.sizes["num_kv_heads"]: first.cache_bytes / row.cache_bytes for row in ordered[1:]
        },
        copying=tuple(row.sizes["num_kv_heads"] for row in ordered if row.materialises),
    )


def decode_in_words(rows: Sequence[Row]) -> tuple[str, ...]:
    """What the table says about one query for each sequence, a line for each finding."""
    return tuple(line for dtype in _dtypes(rows) for line in _decode(dtype, rows))


def prefill_in_words(rows: Sequence[Row]) -> tuple[str, ...]:
    """What the table says about many queries, whose work does not depend on the KV heads."""
    lines = []
    for dtype in _dtypes(rows):
        for heads in _kv_heads(rows):
            timed = [
                row
                for row in rows
                if (row.dtype, row.sizes.get("num_kv_heads")) == (dtype, heads) and row.time
            ]
            if timed:
                lines.append(f"{dtype}, {heads} KV heads: fastest: {_fastest(timed)}")
        lines += _copying(dtype, savings(rows))
    return tuple(lines)


def _decode(dtype: str, rows: Sequence[Row]) -> Iterator[str]:
    known = [saving for saving in savings(rows) if saving.dtype == dtype]
    flat = [saving for saving in known if saving.verdict == "undoes"]
    for found, words in (
        ([saving for saving in known if saving.verdict == "keeps"], "keep the saving"),
        ([saving for saving in known if saving.verdict == "partly"], "keep a part of it"),
        (
            [saving for saving in flat if _mostly_copies(saving)],
            "undo it, since they write every shared head out again for its query heads and read "
            "the copy",
        ),
        (
            [saving for saving in flat if not _mostly_copies(saving)],
            "are flat in KV heads although they copy nothing, since they read each shared head "
            "once for every query head",
        ),
    ):
        if found:
            yield f"{dtype}, {_step(found[0])}: {words}: {_listed(found)}"
    yield from _copying(dtype, known)
    timed = [row for row in rows if row.dtype == dtype and row.time is not None]
    yield from _quantised(dtype, timed)
    for heads in _kv_heads(timed):
        own = [row for row in timed if row.sizes.get("num_kv_heads") == heads]
        yield f"{dtype}, {heads} KV heads: fastest: {_fastest(own)}"


def _quantised(dtype: str, rows: Sequence[Row]) -> Iterator[str]:
    """Caches of fewer bytes than the others of their size, each against its own floor."""
    for subject in dict.fromkeys(row.subject for row in rows):
        told, ratio = [], 1.0
        for row in (row for row in rows if row.subject == subject):
            alike = [other for other in rows if other.sizes == row.sizes]
            ratio = max(other.cache_bytes for other in alike) / row.cache_bytes
            best = min((other.time for other in alike if other.time), key=lambda t: t.minimum)
            if ratio > 1 and row.time is not None and row.over_floor is not None:
                told.append(
                    f"{_times(row.over_floor)} times it at {row.sizes['num_kv_heads']} KV heads "
                    f"({best.ratio(row.time):.2g}x as fast as the fastest)"
                )
        if told:
            yield (
                f"{dtype}: {subject}, whose cache is {ratio:.2g}x smaller, against its own floor: "
                f"{', '.join(told)}"
            )


def _copying(dtype: str, known: Sequence[Saving]) -> Iterator[str]:
    named = [
        f"{saving.subject} (at {', '.join(map(str, saving.copying))} KV heads)"
        for saving in known
        if saving.dtype == dtype and saving.copying
    ]
    if named:
        yield f"{dtype}: copy the cache: {', '.join(named)}"


def _mostly_copies(saving: Saving) -> bool:
    fewer = [heads for heads in saving.copying if heads in saving.faster]
    return 2 * len(fewer) >= len(saving.faster)


def _step(saving: Saving) -> str:
    step = max(saving.faster)
    smaller = saving.smaller[step]
    return f"{step} KV heads against {saving.most} (cache {smaller:.2g}x smaller)"


def _listed(found: Sequence[Saving]) -> str:
    return ", ".join(
        f"{saving.subject} ({saving.faster[max(saving.faster)]:.2g}x as fast)" for saving in found
    )


def _fastest(rows: Sequence[Row]) -> str:
    row = min(rows, key=lambda row: row.time.minimum if row.time is not None else 0.0)
    assert row.time is not None
    multiple = "" if row.over_floor is None else f", {_times(row.over_floor)} times the floor"
    return f"{row.subject}, {row.time.minimum * 1e3:.3g} ms{multiple}"


def _times(number: float) -> str:
    return f"{number:.2g}" if number < 100 else f"{number:,.0f}"


def _dtypes(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row.dtype for row in rows))


def _kv_heads(rows: Sequence[Row]) -> list[int]:
    heads = {row.sizes["num_kv_heads"] for row in rows if "num_kv_heads" in row.sizes}
    return sorted(heads, reverse=True)
