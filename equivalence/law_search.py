"""Many laws on shared cases in one dtype, and the smallest case of every kind of failure."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from equivalence.dtypes import DTYPES
from equivalence.faults import add_fault, diagnosis_of, known_fault
from equivalence.interrupts import raise_if_interrupted
from equivalence.kinds import kind_named
from equivalence.laws import Law
from equivalence.outcome import Target
from equivalence.planned_cases import planned_cases
from equivalence.replay import replay_line
from equivalence.request import Progress, Report, Request, silent
from equivalence.results import Diagnosis, Failure, Shares
from equivalence.search import SHRINK_SECONDS, explore, polish, shrink, size_of
from equivalence.used_parts import counted_in
from equivalence.verdict import Counterexample, LawResult, Trouble, Verdict

CRASHES: Final = ("crash", "hang", "memory")
# Kinds of trouble that look alike for different mistakes.
MIXED: Final = ("outside-bound", "non-finite")
MAX_FAULTS: Final = 4
AGAIN_EXAMPLES: Final = 120  # judged where a fault that is named cannot show, to find a second
ENOUGH_JUDGED: Final = 60  # of those, so many from the first search will do
BROKEN_ENOUGH: Final = 32  # failing cases of one law: it rests, the others go on


@dataclass(slots=True)
class _Found:
    """The failing cases of one law in one dtype, by kind of trouble."""

    result: LawResult
    seen: set[Any] = field(default_factory=set)
    broken: dict[str, dict[Any, Trouble]] = field(default_factory=dict)


class LawSearch:
    """Many laws, one dtype: cases are drawn once and every law looks at each of them."""

    def __init__(
        self,
        target: Target,
        domain: Any,
        laws: Sequence[Law],
        request: Request,
        progress: Report = silent,
    ) -> None:
        kind = kind_named(target.declaration.kind)
        self.kind = kind
        self.subject = kind.subject(target, domain)
        self.domain = domain
        self.laws = laws
        self.request = request
        self.progress = progress
        self.dtype = domain.dtypes[0]
        self.strategy = kind.strategy(domain)
        self.shares = Shares()
        self._crashed: set[Any] = set()
        self._found = {law.name: _Found(LawResult(law=law.name, dtype=self.dtype)) for law in laws}

    def results(self) -> list[LawResult]:
        """What each law found, in the order of the laws."""
        return [found.result for found in self._found.values()]

    def explore(self, deadline: float | None) -> None:
        """Draw cases and judge every law on each."""
        done = 0

        def visit(case: Any) -> bool:
            nonlocal done
            done += 1
            before = self.shares.checks
            self._count(case)
            for law in self.laws:
                self._judge(law, case)
            self.progress(
                Progress(
                    target=self.subject.target.name,
                    stage="search",
                    dtype=self.dtype,
                    done=done,
                    total=self.request.examples,
                )
            )
            return self.shares.checks > before

        for case in planned_cases(self.kind, self.domain, self.request, self._seed):
            if deadline is not None and time.monotonic() > deadline:
                break
            visit(case)
        explore(
            self.strategy,
            visit,
            examples=max(1, self.request.examples - done),
            seed=self._seed,
            deadline=deadline,
        )

    @property
    def _seed(self) -> int:
        return self.request.seed * len(DTYPES) + DTYPES.index(self.dtype)

    def verdict(self, law: Law, case: Any) -> Verdict:
        """The verdict of ``law`` on an adapted case; refused where the author excludes it."""
        raise_if_interrupted()
        supported = self.subject.target.supports(case)
        if supported is not True:
            reason = str(supported) or "excluded by its author"
            return Verdict(status="refused", reason=reason, excluded=True)
        return law.check(case, self.subject)

    def _count(self, case: Any) -> None:
        self.shares.cases += 1
        self.kind.count(self.shares, case)

    def _judge(self, law: Law, drawn: Any) -> None:
        found = self._found[law.name]
        case = law.adapt(drawn, self.domain)
        if case is None or case in found.seen or found.result.broken >= BROKEN_ENOUGH:
            return
        found.seen.add(case)
        if self.request.timings:
            self.subject.heard = {}
        start = time.perf_counter()
        verdict = self.verdict(law, case)
        found.result.seconds += time.perf_counter() - start
        for outcome in (self.subject.heard or {}).values():
            if outcome.seconds is not None:
                found.result.times.append(outcome.seconds)
        self._record(found, case, verdict)

    def _record(self, found: _Found, case: Any, verdict: Verdict) -> None:
        result = found.result
        for remark in verdict.remarks:
            result.remarks[remark] = result.remarks.get(remark, 0) + 1
        match verdict.status:
            case "held":
                result.examples += 1
                self.shares.checks += 1
                counted_in(result.histogram, verdict.used)
                if verdict.used > result.used:
                    result.used, result.worst_case = verdict.used, case
            case "vacuous":
                result.vacuous += 1
                self.shares.vacuous += 1
            case "refused":
                result.refused += 1
                result.excluded += verdict.excluded
                self.shares.refused += 1
                result.reasons[verdict.reason] = result.reasons.get(verdict.reason, 0) + 1
            case "broken":
                trouble = verdict.trouble
                assert trouble is not None
                if trouble.kind in CRASHES:
                    if case in self._crashed:
                        return  # another law has this crash already
                    self._crashed.add(case)
                result.examples += 1
                self.shares.checks += 1
                expected = known_fault(self.subject.target, result.law, trouble.kind, case)
                if expected is not None:
                    result.known = expected.note
                    return
                if trouble.used is not None:
                    counted_in(result.histogram, trouble.used)
                result.broken += 1
                result.first = result.first or self.shares.cases
                found.broken.setdefault(trouble.kind, {})[case] = trouble
            case "inapplicable":
                pass

    def shrink_failures(self, known: list[Failure]) -> None:
        """Shrink each kind of failure of each law, and add the new ones to ``known``."""
        for law in self.laws:
            if any(failure.diagnosis.kind == "layout" for failure in known):
                return  # read in the wrong order, no other number means anything
            found = self._found[law.name]
            mixed = False
            for kind in list(found.broken):
                if kind in MIXED:
                    mixed = True
                else:
                    self._announce(law)
                    self._shrink(law, kind, self.domain, found.broken[kind], known)
            if mixed:
                self._pursue(law, found.broken, known)

    def keep_unshrunk(self, known: list[Failure]) -> None:
        """After a Ctrl-C: of each law that broke, the smallest case that was seen, as it is."""
        for law in self.laws:
            found = self._found[law.name]
            cases = {
                case: trouble for kind in found.broken.values() for case, trouble in kind.items()
            }
            if cases and not found.result.counterexamples:
                case = min(cases, key=size_of)
                text = f"{cases[case].text}; interrupted before it was shrunk and named"
                diagnosis = Diagnosis(kind="unknown", text=text)
                self._report(law, case, cases[case], diagnosis, known)

    def _trouble(self, law: Law, case: Any) -> Trouble | None:
        """What breaks ``law`` on ``case``, and is not a declared fault."""
        trouble = self.verdict(law, case).trouble
        if trouble is None or known_fault(self.subject.target, law.name, trouble.kind, case):
            return None
        return trouble

    def _spared(self, domain: Any, case: Any) -> bool:
        """Whether the case lies where the faults that are named already cannot show."""
        within = self.kind.within
        return domain == self.domain or within is None or within(domain, case)

    def _announce(self, law: Law, stage: str = "shrink") -> None:
        name = self.subject.target.name
        self.progress(Progress(target=name, stage=stage, law=law.name, dtype=self.dtype))

    def _pursue(
        self, law: Law, broken: dict[str, dict[Any, Trouble]], known: list[Failure]
    ) -> None:
        """Shrink and name one fault, search again where it cannot show, and so on.

        Wrong numbers look alike whatever made them wrong, so one search finds one fault.
        """
        domain, named = self.domain, []
        for _ in range(MAX_FAULTS):
            kind = next((kind for kind in MIXED if broken.get(kind)), None)
            if kind is None:
                return
            self._announce(law)
            unnamed = [f for f in known if f.diagnosis.kind not in named]
            diagnosis = self._shrink(law, kind, domain, broken[kind], known, unnamed)
            named.append(diagnosis.kind)
            spared = self.kind.spare and self.kind.spare(domain, diagnosis.kind)
            if not spared or spared == domain or not self.request.shrink:
                return
            domain = spared
            broken = self._broken_in(law, domain, self._found[law.name])

    def _broken_in(self, law: Law, domain: Any, first: _Found) -> dict[str, dict[Any, Trouble]]:
        """The failures of one law in a part of the domain; not counted as checks.

        What the ``first`` search judged there counts; only where that was little, more is drawn.
        """
        broken: dict[str, dict[Any, Trouble]] = {}
        within = self.kind.within
        judged = 0
        if within is not None and getattr(domain, "empty_rows", True):
            judged = sum(within(domain, case) for case in first.seen)
            for kind, cases in first.broken.items():
                told = {case: trouble for case, trouble in cases.items() if within(domain, case)}
                broken |= {kind: told} if told else {}
            if judged >= ENOUGH_JUDGED or any(broken.get(kind) for kind in MIXED):
                return broken

        def visit(drawn: Any) -> None:
            case = law.adapt(drawn, domain)
            if case is None:
                return
            trouble = self._trouble(law, case)
            if trouble is not None:
                broken.setdefault(trouble.kind, {})[case] = trouble

        for case in planned_cases(self.kind, domain, self.request, self._seed):
            visit(case)
        examples = max(1, min(self.request.examples, AGAIN_EXAMPLES) - judged)
        explore(self.kind.strategy(domain), visit, examples=examples, seed=self._seed)
        return broken

    def _shrink(
        self,
        law: Law,
        kind: str,
        domain: Any,
        cases: dict[Any, Trouble],
        known: list[Failure],
        reusable: list[Failure] | None = None,
    ) -> Diagnosis:
        """The smallest case of one kind of trouble, reported; ``reusable`` cases come first."""

        def trouble_of(case: Any) -> Trouble | None:
            if case.dtype != self.dtype or law.adapt(case, domain) != case:
                return None
            if not self._spared(domain, case):
                return None
            trouble = self._trouble(law, case)
            return trouble if trouble is not None and trouble.kind == kind else None

        if self.request.shrink:
            case, trouble = self._smallest(
                law, domain, cases, trouble_of, known if reusable is None else reusable
            )
        else:
            case = min(cases, key=size_of)
            trouble = cases[case]
        diagnosis = self._diagnosis(law, domain, case, trouble)
        if diagnosis.kind == "unknown" and self.kind.retold is not None:
            subject = self.kind.subject(self.subject.target, domain)
            named = [f.diagnosis for f in known if f.diagnosis.kind != "unknown"]
            diagnosis = self.kind.retold(subject, law.name, case, named) or diagnosis
        self._report(law, case, trouble, diagnosis, known)
        return diagnosis

    def _diagnosis(self, law: Law, domain: Any, case: Any, trouble: Trouble) -> Diagnosis:
        """The mistake, asked for in ``domain``: faults named before cannot blur it there.

        Nor can a fault of the head map, which is not named yet: where a case of a single head
        gets a name that no part of the domain is free of, single heads are all that is asked.
        """

        def asked(part: Any) -> Diagnosis:
            return diagnosis_of(
                self.kind.subject(self.subject.target, part), law.name, case, trouble
            )

        diagnosis = asked(domain)
        spare = self.kind.spare
        if spare is None or spare(domain, diagnosis.kind) or getattr(case, "num_heads", 2) > 1:
            return diagnosis
        alone = asked(spare(domain, "head-mixing"))
        return diagnosis if alone.kind == "unknown" else alone

    def _smallest(
        self,
        law: Law,
        domain: Any,
        cases: dict[Any, Trouble],
        trouble_of: Callable[[Any], Trouble | None],
        known: Sequence[Failure],
    ) -> tuple[Any, Trouble]:
        for failure in known:  # the same fault usually breaks other laws on the same small case
            again = law.adapt(failure.case.but(dtype=self.dtype), domain)
            if again is None:
                continue
            trouble = trouble_of(again)
            if trouble is not None:
                return again, trouble
        case = self._plain(cases, trouble_of)
        if case is None:
            case = shrink(
                self.kind.strategy(domain),
                lambda drawn: law.adapt(drawn, domain),
                lambda case: trouble_of(case) is not None,
                set(cases),
                examples=self.request.examples,
                seed=self._seed,
            )
        return case, trouble_of(case) or cases.get(case) or next(iter(cases.values()))

    def _plain(
        self, cases: dict[Any, Trouble], trouble_of: Callable[[Any], Trouble | None]
    ) -> Any | None:
        """The simplest of the plainest cases that shows the trouble; None where none does."""
        if self.kind.plainest is None or self.subject.target.declaration.costly:
            return None
        deadline = time.monotonic() + SHRINK_SECONDS
        for case in self.kind.plainest(cases):
            if time.monotonic() > deadline:
                return None
            if trouble_of(case) is not None:
                return polish(case, lambda one: trouble_of(one) is not None, deadline=deadline)
        return None

    def _report(
        self,
        law: Law,
        case: Any,
        trouble: Trouble,
        diagnosis: Diagnosis,
        known: list[Failure],
    ) -> None:
        """Add a counterexample to its law, and a fault that is not known yet to the failures."""
        replay = replay_line(self.subject.target.name, case, law=law.name)
        self._found[law.name].result.counterexamples.append(
            Counterexample(case=case, trouble=trouble, replay=replay)
        )
        failure = Failure(
            law=law.name,
            dtype=self.dtype,
            case=case,
            trouble=trouble,
            diagnosis=diagnosis,
            replay=replay,
        )
        if add_fault(known, failure):
            self._announce(law, "named")
