"""What may not get worse: one line for each thing that did, and for each that got better."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from equivalence.gate.baseline import Baseline, LawState, TargetState, baseline_of
from equivalence.gate.findings import Findings, real
from equivalence.profiles import LOOSENING
from equivalence.report.numbers import counted, percent, short
from equivalence.report.schema import Number
from equivalence.timing.results import NOISE

SIGMAS = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change; ``looser`` fails the gate, and the rest is worth locking in."""

    looser: bool
    text: str


@dataclass(slots=True, kw_only=True)
class Comparison:
    """Findings against a baseline.

    same_cases: the runs are those of the baseline, so counts and used parts compare as they are.
    expected: (target, law, dtype) whose failure is expected. reasons: why a target is missing.
    replays: how to see a broken law.
    """

    same_cases: bool
    expected: frozenset[tuple[str, str, str]] = frozenset()
    reasons: Mapping[str, str] = field(default_factory=dict)
    replays: Mapping[tuple[str, str, str], str] = field(default_factory=dict)


def compare(old: Baseline, findings: Findings) -> list[Change]:
    """The changes from ``old`` to ``findings``, the failing ones first."""
    new = baseline_of(findings)
    known = Comparison(
        same_cases=old.runs == new.runs and not any(run.bounded for run in new.runs),
        expected=frozenset((r.target, r.law, r.dtype) for r in findings.judged if r.expected),
        reasons=dict(sorted(findings.unavailable)),
        replays={(r.target, r.law, r.dtype): r.replay for r in findings.judged if r.replay},
    )
    changes = [Change(looser=True, text=text) for text in sorted(findings.complaints)]
    for fact in sorted(findings.about, key=lambda fact: (fact.target, fact.run)):
        if fact.trouble:
            changes.append(Change(looser=True, text=f"{fact.target}: not run: {fact.trouble}"))
        if fact.interrupted:
            changes.append(Change(looser=True, text=f"{fact.target}: its run was interrupted"))
    for name, state in sorted(old.targets.items()):
        if name in new.targets:
            changes += _target(name, state, new.targets[name], known)
        else:
            why = known.reasons.get(name)
            text = f"{name}: lost backend{f': {why}' if why else ''}"
            changes.append(Change(looser=True, text=text))
    for name, state in sorted(new.targets.items()):
        if name not in old.targets:
            changes += _added(name, state, known)
    changes += _pairs(old, new)
    unique = list(dict.fromkeys(changes))
    return sorted(unique, key=lambda change: not change.looser)


def _target(name: str, old: TargetState, new: TargetState, known: Comparison) -> Iterator[Change]:
    if new.kind != old.kind:
        yield Change(looser=True, text=f"{name}: is of kind {new.kind}, was {old.kind}")
    if new.profile != old.profile:
        both = old.profile in LOOSENING and new.profile in LOOSENING
        tighter = both and LOOSENING.index(new.profile) < LOOSENING.index(old.profile)
        text = f"{name}: judged by profile {new.profile}, was {old.profile}"
        yield Change(looser=not tighter, text=text)
    yield from _laws(name, old, new, known)
    for feature, why in new.not_exercised.items():
        if feature not in old.not_exercised:
            yield Change(looser=True, text=f"{name}: no longer exercised: {feature}: {why}")
    for feature in old.not_exercised:
        if feature not in new.not_exercised:
            yield Change(looser=False, text=f"{name}: now exercised: {feature}")
    for what in ("tolerance", "graph", "allocation"):
        yield from _numbers(f"{name}: {what}", getattr(old, what), getattr(new, what))
    yield from _numbers(f"{name}: ratio", old.ratios, new.ratios, noise=NOISE)


def _laws(name: str, old: TargetState, new: TargetState, known: Comparison) -> Iterator[Change]:
    dtypes = {dtype for law in new.laws.values() for dtype in law}
    gone = sorted({dtype for law in old.laws.values() for dtype in law} - dtypes)
    for dtype in gone:
        yield Change(looser=True, text=f"{name}: lost dtype {dtype}")
    for law, states in old.laws.items():
        if law not in new.laws:
            yield Change(looser=True, text=f"{name}: lost law {law}")
            continue
        for dtype, state in states.items():
            now = new.laws[law].get(dtype)
            if now is not None:
                yield from _law(name, law, dtype, state, now, known)
            elif dtype not in gone:
                yield Change(looser=True, text=f"{name}: lost law {law} in {dtype}")
    for law, states in new.laws.items():
        for dtype, now in states.items():
            if dtype not in old.laws.get(law, {}):
                yield from _added_law(name, law, dtype, now, known)
    before, after = (
        sum(state.cases for law in side.laws.values() for state in law.values())
        for side in (old, new)
    )
    if not known.same_cases and 2 * after < before:
        text = f"{name}: looked at {counted(after, 'case')}, fewer than half of {before:,}"
        yield Change(looser=True, text=text)


def _law(
    name: str, law: str, dtype: str, old: LawState, new: LawState, known: Comparison
) -> Iterator[Change]:
    where = f"{name}: {law} {dtype}".rstrip()
    if new.held is False:
        if old.held is not False and (name, law, dtype) not in known.expected:
            yield Change(looser=True, text=_broken(where, known.replays.get((name, law, dtype))))
        return
    if new.held is None:
        if old.held is not None:
            why = f"{new.refused:,} refused, {new.vacuous:,} vacuous"
            yield Change(looser=True, text=f"{where}: no longer judged ({why})")
        return
    if old.held is not True:
        verb = "now holds" if old.held is False else "is now judged, and holds"
        yield Change(looser=False, text=f"{where}: {verb}")
        return
    for what in ("refused", "vacuous"):
        yield from _share(where, what, old, new, known)
    if known.same_cases:
        before, after = real(old.used, where), real(new.used, where)
        if not _same(before, after):
            text = f"{where}: uses {short(after)} of its bound, was at most {short(before)}"
            yield Change(looser=not after < before, text=text)


def _broken(where: str, replay: str | None) -> str:
    return f"{where}: broke{f': {replay}' if replay else ''}"


def _share(
    where: str, what: str, old: LawState, new: LawState, known: Comparison
) -> Iterator[Change]:
    """More refused or vacuous cases; on other cases, more than chance explains."""
    before, after = getattr(old, what), getattr(new, what)
    if known.same_cases:
        if after != before:
            text = f"{where}: {after:,} cases {what}, were {before:,}"
            yield Change(looser=after > before, text=text)
        return
    share, now = before / max(1, old.cases), after / max(1, new.cases)
    spread = max(share * (1 - share), 1 / max(1, old.cases))
    chance = SIGMAS * math.sqrt(spread * (1 / max(1, old.cases) + 1 / max(1, new.cases)))
    if now > share + chance:
        text = f"{where}: {percent(now)} of the cases {what}, were {percent(share)}"
        yield Change(looser=True, text=text)


def _numbers(
    where: str, old: Mapping[str, Number], new: Mapping[str, Number], *, noise: float = 1.0
) -> Iterator[Change]:
    """What grew by more than the factor ``noise``; less is better."""
    for name, value in old.items():
        if name not in new:
            yield Change(looser=True, text=f"{where} {name}: no longer measured")
            continue
        before, after = real(value, where), real(new[name], where)
        if _same(before, after) or before / noise <= after <= before * noise:
            continue
        text = f"{where} {name}: {after:g}, was {before:g}"
        yield Change(looser=not after < before, text=text)
    for name in new:
        if name not in old:
            yield Change(looser=False, text=f"{where} {name}: now measured")


def _same(before: float, after: float) -> bool:
    return before == after or (math.isnan(before) and math.isnan(after))


def _added(name: str, state: TargetState, known: Comparison) -> Iterator[Change]:
    yield Change(looser=False, text=f"{name}: not in the baseline yet")
    for law, states in state.laws.items():
        for dtype, now in states.items():
            if now.held is False:
                yield from _added_law(name, law, dtype, now, known)


def _added_law(
    name: str, law: str, dtype: str, now: LawState, known: Comparison
) -> Iterator[Change]:
    where = f"{name}: {law} {dtype}".rstrip()
    if now.held is not False:
        yield Change(looser=False, text=f"{where}: not in the baseline yet")
    elif (name, law, dtype) not in known.expected:
        text = _broken(where, known.replays.get((name, law, dtype)))
        yield Change(looser=True, text=f"{text} (not in the baseline yet)")


def _pairs(old: Baseline, new: Baseline) -> Iterator[Change]:
    for name, held in old.pairs.items():
        now = new.pairs.get(name)
        if name not in new.pairs:
            yield Change(looser=held is True, text=f"{name}: no longer compared")
        elif now is True and held is not True:
            yield Change(looser=False, text=f"{name}: now holds")
        elif now is False and held is not False:
            yield Change(looser=True, text=f"{name}: broke")
        elif now is None and held is True:
            yield Change(looser=True, text=f"{name}: no longer judged")
    for name, now in new.pairs.items():
        if name not in old.pairs:
            text = f"{name}: {'broke' if now is False else 'not in the baseline yet'}"
            yield Change(looser=now is False, text=text)
