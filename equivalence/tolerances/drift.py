"""What changed between a committed table of tolerances and a new one, one line each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from equivalence.profiles import LOOSENING
from equivalence.report.numbers import short
from equivalence.tolerances.table import Entry, Tolerances


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """One change; ``looser`` fails a check, and the rest is worth locking in."""

    looser: bool
    text: str


def drifts(
    old: Tolerances, new: Tolerances, *, absent: Mapping[tuple[str, str], str] | None = None
) -> list[Drift]:
    """The changes from ``old`` to ``new``, the failing ones first.

    absent: why (backend, dtype) was not measured, where that is known.
    """
    found: list[Drift] = []
    reasons = absent or {}
    for backend, entries in sorted(old.tolerance.items()):
        for dtype, entry in entries.items():
            other = new.tolerance.get(backend, {}).get(dtype)
            if other is None:
                why = reasons.get((backend, dtype)) or reasons.get((backend, ""), "not measured")
                found.append(Drift(looser=True, text=f"{backend} {dtype}: lost: {why}"))
            else:
                found += _between(f"{backend} {dtype}", entry, other)
    for backend, entries in sorted(new.tolerance.items()):
        for dtype in entries:
            if dtype not in old.tolerance.get(backend, {}):
                text = f"{backend} {dtype}: not in the table yet; --write adds it"
                found.append(Drift(looser=False, text=text))
    if any(change.looser for change in found):
        found += [Drift(looser=True, text=line) for line in _versions(old, new)]
    return sorted(found, key=lambda change: not change.looser)


def _between(who: str, old: Entry, new: Entry) -> Iterator[Drift]:
    if old.kind != new.kind:
        yield Drift(looser=True, text=f"{who}: was of kind {old.kind}, is {new.kind}")
    if old.profile != new.profile:
        tighter = _tighter(old.profile, new.profile)
        text = f"{who}: judged by profile {new.profile}, was {old.profile}"
        yield Drift(looser=not tighter, text=text)
    for name, words in (
        ("used", "uses {} of its bound, was at most {}"),
        ("k", "errs by {} u sum p|v|, was at most {}"),
        ("atol", "needs atol {}, was at most {}"),
    ):
        before, now = getattr(old, name), getattr(new, name)
        if before is None and now is None:
            continue
        if before is None or now is None:
            yield Drift(looser=now is None, text=f"{who}: {name} was {before}, is {now}")
        elif now != before:
            text = f"{who}: {words.format(short(now), short(before))}"
            yield Drift(looser=not now <= before, text=text)


def _tighter(old: str, new: str) -> bool:
    known = old in LOOSENING and new in LOOSENING
    return known and LOOSENING.index(new) < LOOSENING.index(old)


def _versions(old: Tolerances, new: Tolerances) -> Iterator[str]:
    """What else is different: the first thing to look at."""
    before, now = _flat(old.environment), _flat(new.environment)
    changed = [
        f"{name} {before.get(name, 'none')} -> {now.get(name, 'none')}"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    ]
    if changed:
        yield f"measured elsewhere: {', '.join(changed)}"


def _flat(environment: Mapping[str, Any]) -> dict[str, str]:
    flat: dict[str, str] = {}
    for name, value in environment.items():
        if isinstance(value, Mapping):
            flat |= {str(key): str(item) for key, item in value.items() if item is not None}
        elif value is not None:
            flat[name] = str(value)
    return flat
