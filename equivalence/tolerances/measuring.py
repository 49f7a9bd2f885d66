"""Measure one target in one dtype: the largest part of its bound over independent cases."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import hypothesis
import numpy as np
from hypothesis import HealthCheck, Phase

from equivalence.dtypes import Array
from equivalence.errors import InvalidRequest, require
from equivalence.faults import known_fault
from equivalence.kinds import kind_named
from equivalence.laws import Law, all_laws
from equivalence.outcome import Target
from equivalence.tolerances.drawing import DECLARED, as_declared, independent_cases
from equivalence.verdict import Trouble, Verdict

CONFIDENCE: Final = 0.95
SHARE: Final = 0.99
# 0.99^n <= 0.05 from here on: the largest of n independent cases exceeds, with 95% confidence,
# what 99% of all cases stay below (Wilks 1941, a tolerance limit without any distribution).
FEWEST: Final = math.ceil(math.log(1 - CONFIDENCE) / math.log(SHARE))
MOST_DRAWS: Final = 20  # for each case that is wanted: others are refused, or vacuous
# (rtol, atol) of torch.testing.assert_close for each dtype.
ASSERT_CLOSE: Final = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Close:
    """What ``torch.testing.assert_close`` would have needed on the declared distribution.

    atol: beside its own rtol. rejects: the share of cases that its defaults reject.
    """

    rtol: float
    atol: float
    rejects: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What independent cases, and then a search for the worst one, showed.

    used: the largest of ``cases``, at ``worst``. k: the smallest for which |error| <= k u sum
    p|v| on the declared distribution; None where that says nothing of the kind. searched_k,
    searched_used: what a search for the largest k found, at ``searched``.
    """

    backend: str
    kind: str
    dtype: str
    profile: str
    law: str
    cases: int
    vacuous: int
    refused: int
    used: float
    worst: Any
    k: float | None = None
    close: Close | None = None
    searched_k: float = 0.0
    searched_used: float = 0.0
    searched: Any = None


class Broken(Exception):
    """The target does not hold: there is no tolerance to measure."""

    def __init__(self, case: Any, trouble: Trouble, law: str) -> None:
        super().__init__(trouble.text)
        self.case, self.trouble, self.law = case, trouble, law


class Unmeasured(Exception):
    """Too few cases could be judged; the text says why."""


def require_cases(cases: int) -> None:
    """Refuse a number of cases from which nothing follows."""
    require(
        cases >= FEWEST,
        f"--cases {cases}: the largest of n cases covers {SHARE:.0%} of all with "
        f"{CONFIDENCE:.0%} confidence from n = {FEWEST} on",
    )


def covered(cases: int) -> float:
    """The share of all cases that the largest of ``cases`` covers with 95% confidence."""
    return float((1 - CONFIDENCE) ** (1 / cases))


class Measurement:
    """One target in one dtype."""

    def __init__(self, target: Target, dtype: str, domain: Any) -> None:
        self.target, self.dtype = target, dtype
        self.kind = kind_named(target.declaration.kind)
        self.domain = domain.but(dtypes=(dtype,))
        self.subject = self.kind.subject(target, self.domain)
        self.law: Law = all_laws(self.kind.name)[0]

    def measured(
        self,
        *,
        cases: int,
        seed: int,
        search: int,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Measured:
        """Judge ``cases`` cases, then search ``search`` more for the worst.

        Raises Broken at a case that breaks the law, Unmeasured where too few can be judged.
        """
        require_cases(cases)
        counts = {"vacuous": 0, "refused": 0}
        used, worst, judged, declared = -1.0, None, 0, _Declared(self)
        for number, drawn in enumerate(independent_cases(self.kind, self.domain, seed)):
            if judged == cases:
                break
            if number == MOST_DRAWS * cases:
                raise Unmeasured(
                    f"of {number} cases {counts['refused']} were refused and "
                    f"{counts['vacuous']} vacuous; {judged} are too few"
                )
            verdict, case = self.verdict(drawn)
            if verdict is None or verdict.status in counts:
                counts["refused" if verdict is None else verdict.status] += 1
                continue
            if verdict.status != "held":
                continue
            judged += 1
            if verdict.used > used:
                used, worst = verdict.used, case
            declared.add(as_declared(case))
            progress(judged, cases)
        found = _Searched(self)
        if search:
            found.run(search, seed)
        return Measured(
            backend=self.target.name,
            kind=self.kind.name,
            dtype=self.dtype,
            profile=self.subject.profile(self.dtype).name,
            law=self.law.name,
            cases=judged,
            used=used,
            worst=worst,
            # A rotation has no p and no v, and its error grows with the position.
            k=declared.k if declared.elements and self.kind.name != "rotary" else None,
            close=declared.close(),
            searched_k=found.natural,
            searched_used=found.used,
            searched=found.case,
            **counts,
        )

    def verdict(self, drawn: Any) -> tuple[Verdict | None, Any]:
        """The verdict and the adapted case; None where the target's author excludes it."""
        case = self.law.adapt(drawn, self.domain)
        if case is None or self.target.supports(case) is not True:
            return None, case
        verdict = self.law.check(case, self.subject)
        if verdict.trouble is None:
            return verdict, case
        if known_fault(self.target, self.law.name, verdict.trouble.kind, case) is not None:
            return None, case
        raise Broken(case, verdict.trouble, self.law.name)

    def elements(self, case: Any) -> Iterator[tuple[Array, Array, Array]]:
        """(actual, expected, u sum p|v|) of the judged elements of one case."""
        inputs = self.subject.inputs(case)
        if not hasattr(self.subject, "call"):
            return
        outcome = self.subject.call(inputs)
        if outcome.stored is None:
            return
        pieces = getattr(inputs, "pieces", None)
        parts = (
            [(outcome.output, self.subject.exact(inputs), self.subject.allowance(inputs))]
            if pieces is None
            else [(p.take(outcome.output), p.exact, self.subject.allowance(p)) for p in pieces]
        )
        for actual, exact, allowance in parts:
            seen = getattr(exact, "seen", None)
            rows = allowance.in_domain if seen is None else allowance.in_domain & (seen > 0)
            judged = np.broadcast_to(rows[..., None], actual.shape) & np.isfinite(actual)
            natural = np.broadcast_to(allowance.natural, actual.shape)
            yield actual[judged], exact.output[judged], natural[judged]


class _Declared:
    """The human-readable tolerances, over cases with normal numbers."""

    def __init__(self, measurement: Measurement) -> None:
        self._of = measurement
        self.k = self._atol = 0.0
        self.elements = self._cases = self._rejected = 0

    def add(self, case: Any) -> None:
        """One more case."""
        if self._of.kind.name == "converter":  # each family of modules has numbers of its own
            return
        if self._of.target.supports(case) is not True:
            return
        rtol, atol = ASSERT_CLOSE[self._of.dtype]
        rejected, elements = False, 0
        for actual, expected, natural in self._of.elements(case):
            error = np.abs(actual - expected)
            elements += error.size
            some = natural > 0
            self.k = max(self.k, float((error[some] / natural[some]).max(initial=0.0)))
            over = error - rtol * np.abs(expected)
            self._atol = max(self._atol, float(over.max(initial=0.0)))
            rejected |= bool((over > atol).any())
        self.elements += elements
        self._cases += elements > 0
        self._rejected += rejected

    def close(self) -> Close | None:
        """What assert_close would have needed."""
        if not self._cases:
            return None
        rtol = ASSERT_CLOSE[self._of.dtype][0]
        return Close(rtol=rtol, atol=self._atol, rejects=self._rejected / self._cases)


class _Searched:
    """Hypothesis climbs towards the largest error in units of u sum p|v|; never for a verdict."""

    def __init__(self, measurement: Measurement) -> None:
        self._of = measurement
        self.natural, self.used, self.case = 0.0, 0.0, None

    def run(self, examples: int, seed: int) -> None:
        """Search ``examples`` cases."""
        domain, normal = self._of.domain, DECLARED["values"]
        if normal in getattr(domain, "values", ()):
            domain = domain.but(values=(normal,))

        @hypothesis.seed(seed)
        @hypothesis.settings(
            max_examples=examples,
            phases=(Phase.generate, Phase.target),
            database=None,
            deadline=None,
            derandomize=False,
            suppress_health_check=list(HealthCheck),
            verbosity=hypothesis.Verbosity.quiet,
        )
        @hypothesis.given(self._of.kind.strategy(domain))
        def climb(drawn: Any) -> None:
            kept = {"magnitude": drawn.magnitude} if hasattr(drawn, "magnitude") else {}
            verdict, case = self._of.verdict(as_declared(drawn).but(**kept))
            if verdict is None or verdict.status != "held" or not math.isfinite(verdict.natural):
                return
            if verdict.natural > self.natural:
                self.natural, self.used, self.case = verdict.natural, verdict.used, case
            hypothesis.target(verdict.natural, label="error in units of u sum p|v|")

        # A target that answers differently on repetition: its own law says so.
        with contextlib.suppress(hypothesis.errors.Flaky):
            climb()


def trials_of(target: Target, dtypes: tuple[str, ...] | None) -> Any:
    """What the target takes; raises InvalidRequest where it takes nothing."""
    trials = kind_named(target.declaration.kind).trials(target, dtypes)
    if trials.base is None:
        why = trials.not_exercised.get("anything", "no tiny case worked")
        raise InvalidRequest(f"{target.name}: every tiny case was refused: {why}")
    return trials.domain
