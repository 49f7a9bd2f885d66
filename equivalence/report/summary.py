"""What a result adds up to: one row a law, one sentence a target, the shares of the run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from equivalence.profiles import PROFILES, profile_for
from equivalence.report.numbers import count, counted, percent, short
from equivalence.results import LIMITED, Shares, TargetResult
from equivalence.verdict import LawResult

HINT: Final = "; declare what it takes (supports, head_dims, ...) to have that accepted"


@dataclass(slots=True, kw_only=True)
class LawSummary:
    """One law of one target over all dtypes."""

    name: str
    held: bool | None = None
    examples: int = 0
    vacuous: int = 0
    refused: int = 0
    used: float = 0.0
    known: str = ""
    seconds: float = 0.0
    dtypes: list[LawResult] = field(default_factory=list)

    @property
    def limited(self) -> bool:
        """Whether most of its cases were refused."""
        return self.refused >= LIMITED * max(1, self.refused + self.examples + self.vacuous)


def law_summaries(target: TargetResult) -> list[LawSummary]:
    """The laws of ``target`` in the order in which they were first judged."""
    rows: dict[str, LawSummary] = {}
    for result in target.laws:
        row = rows.setdefault(result.law, LawSummary(name=result.law))
        row.examples += result.examples
        row.vacuous += result.vacuous
        row.refused += result.refused
        beyond = [found.trouble.used or 0.0 for found in result.counterexamples]
        row.used = max(row.used, result.used, *beyond)
        row.seconds += result.seconds
        row.known = row.known or result.known
        row.dtypes.append(result)
    for row in rows.values():
        verdicts = [result.held for result in row.dtypes]
        row.held = False if False in verdicts else True if True in verdicts else None
    return list(rows.values())


def sentence(target: TargetResult) -> str:
    """The plain verdict on one target, which stands in the first line about it."""
    rows = law_summaries(target)
    judged = [row for row in rows if row.held is not None]
    checks = sum(row.examples for row in rows)
    of_laws = f"{counted(checks, 'check')} of {counted(len(judged), 'law')}"
    profile = _profiles(target, judged)
    refusal = ", and it refuses every grouped case" if target.refuses_grouped else ""
    stopped = " (interrupted: this is what was known)" if target.interrupted else ""
    if target.trouble:
        return f"{target.target} could not be run: {target.trouble}{stopped}"
    if target.held is None:
        return f"{target.target} was not exercised: {_why_nothing(target)}{stopped}"
    if target.held:
        worst = max((row.used for row in judged), default=0.0)
        facts = f"worst {short(worst)} of the bound" + (f" ({profile})" if profile else "")
        if target.limited:
            share = f"limited: it refused {percent(target.limited)} of its cases"
            hint = HINT if target.hardly_judged else ""
            return f"{target.target} is {share}, the rest holds: {of_laws}, {facts}{hint}{stopped}"
        return f"{target.target} holds: {of_laws}, {facts}{refusal}{stopped}"
    kinds = list(dict.fromkeys(failure.diagnosis.kind for failure in target.failures))
    named = f" ({', '.join(kinds)})" if kinds else ""
    faults = counted(len(target.failures), "fault") if kinds else "a law is broken"
    verb = "crashes" if target.crashed else "does not hold"
    return f"{target.target} {verb}: {faults}{named} in {of_laws}{refusal}{stopped}"


def _profiles(target: TargetResult, judged: list[LawSummary]) -> str:
    """By what it was judged: float32 alone, say, is never judged by a profile of 16 bit."""
    if target.profile not in PROFILES:
        return f"profile {target.profile}" if target.profile else ""
    dtypes = dict.fromkeys(r.dtype for row in judged for r in row.dtypes if r.held is not None)
    names = list(dict.fromkeys(profile_for(dtype, target.profile).name for dtype in dtypes))
    return f"profile {names[0] if len(names) == 1 else target.profile}"


def refusals(target: TargetResult) -> dict[str, int]:
    """Why cases were refused and how often, the commonest reason first."""
    reasons: dict[str, int] = {}
    for law in target.laws:
        for reason, times in law.reasons.items():
            reasons[reason] = reasons.get(reason, 0) + times
    return dict(sorted(reasons.items(), key=lambda item: -item[1]))


def _why_nothing(target: TargetResult) -> str:
    reasons = refusals(target)
    refused = sum(law.refused for law in target.laws)
    vacuous = sum(law.vacuous for law in target.laws)
    if reasons:
        reason = next(iter(reasons))
        return f"it refused all {counted(refused, 'case')} ({reason})"
    if vacuous:
        return f"all {counted(vacuous, 'check')} were vacuous (the bound covers every value)"
    if target.not_exercised:
        feature, reason = next(iter(target.not_exercised.items()))
        return f"{feature}: {reason}"
    return "no case was judged"


def shares_line(shares: Iterable[Shares]) -> str:
    """What the drawn cases were like, in one line."""
    facts = Shares().merge(shares).summary()
    return (
        f"{count(int(facts['checks']))} checks; median kv_len {facts['median_kv_len']:g}, "
        f"grouped {percent(facts['grouped'])}, real head_dim {percent(facts['real_head_dim'])}, "
        f"vacuous {percent(facts['vacuous'])}, refused {percent(facts['refused'])}"
    )
