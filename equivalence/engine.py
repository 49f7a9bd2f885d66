"""Check one target: try its features, search all laws at once, shrink and name what breaks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from equivalence.case import AttentionCase
from equivalence.declaration import KnownFault
from equivalence.dtypes import DTYPES
from equivalence.kinds import kind_named
from equivalence.laws import Law, all_laws, law_named
from equivalence.outcome import Target
from equivalence.results import Diagnosis, Failure, Shares, TargetResult
from equivalence.search import explore, shrink, size_of
from equivalence.trials import Trials
from equivalence.verdict import Counterexample, LawResult, Trouble, Verdict

DEFAULT_EXAMPLES: Final = 120
CRASHES: Final = ("crash", "hang", "memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """How hard to look. seconds bounds the search of one target; None means ``examples`` alone."""

    examples: int = DEFAULT_EXAMPLES
    seconds: float | None = None
    seed: int = 0
    dtypes: tuple[str, ...] | None = None
    laws: tuple[str, ...] | None = None
    head_layouts: tuple[tuple[int, int, int], ...] | None = None
    long_context: bool = False
    timings: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a check stands: ``stage`` is "trials", "probes", "search" or "shrink"."""

    target: str
    stage: str
    law: str = ""
    dtype: str = ""
    done: int = 0
    total: int = 0


Report = Callable[[Progress], None]


def _silent(progress: Progress) -> None:
    """Report nothing."""


@dataclass(slots=True)
class _Found:
    """The failing cases of one law in one dtype, by kind of trouble."""

    result: LawResult
    seen: set[Any] = field(default_factory=set)
    broken: dict[str, dict[Any, Trouble]] = field(default_factory=dict)


def check_target(
    target: Target, request: Request | None = None, progress: Report = _silent
) -> TargetResult:
    """Check every law on ``target``; Ctrl-C ends the search and keeps what is known."""
    request = request or Request()
    result = TargetResult(
        target=target.name,
        kind=target.declaration.kind,
        profile=target.declaration.profile or "eager",
    )
    deadline = None if request.seconds is None else time.monotonic() + request.seconds
    progress(Progress(target=target.name, stage="trials"))
    trials = kind_named(result.kind).trials(target, request.dtypes)
    result.not_exercised = trials.not_exercised
    result.refuses_grouped = trials.refuses_grouped
    laws = [law_named(n) for n in request.laws] if request.laws else list(all_laws(result.kind))
    try:
        if trials.base is None:
            text = trials.not_exercised.get("anything", "no tiny case worked")
            result.trouble = f"every tiny case was refused: {text}"
        else:
            domain = trials.domain.but(long_context=request.long_context)
            if request.head_layouts is not None:
                domain = domain.but(head_layouts=request.head_layouts)
            _search_all(target, domain, laws, request, deadline, result, progress)
    except KeyboardInterrupt:
        result.interrupted = True
    _note_trials(target, trials, result)
    return result


def _search_all(
    target: Target,
    domain: Any,
    laws: Sequence[Law],
    request: Request,
    deadline: float | None,
    result: TargetResult,
    progress: Report,
) -> None:
    known = _outdated(target, domain, laws)
    for number, dtype in enumerate(domain.dtypes):
        limit = deadline
        if deadline is not None:
            left = max(0.0, deadline - time.monotonic())
            limit = time.monotonic() + left / (len(domain.dtypes) - number)
        narrowed = domain.but(dtypes=(dtype,))
        search = LawSearch(target, narrowed, laws, request, progress)
        try:
            search.explore(limit)
        finally:
            result.laws.extend(search.results())
            result.shares.merge([search.shares])
        search.shrink_failures(known)
    result.failures = known
    for law in result.laws:
        for reason, count in law.remarks.items():
            result.remarks[reason] = result.remarks.get(reason, 0) + count


class LawSearch:
    """Many laws, one dtype: cases are drawn once and every law looks at each of them."""

    def __init__(
        self,
        target: Target,
        domain: Any,
        laws: Sequence[Law],
        request: Request,
        progress: Report = _silent,
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

        def visit(case: Any) -> None:
            nonlocal done
            done += 1
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

        explore(
            self.strategy,
            visit,
            examples=self.request.examples,
            seed=self._seed,
            deadline=deadline,
        )

    @property
    def _seed(self) -> int:
        return self.request.seed * len(DTYPES) + DTYPES.index(self.dtype)

    def verdict(self, law: Law, case: Any) -> Verdict:
        """The verdict of ``law`` on an adapted case; refused where the author excludes it."""
        supported = self.subject.target.supports(case)
        if supported is not True:
            return Verdict(status="refused", reason=str(supported) or "excluded by its author")
        return law.check(case, self.subject)

    def _count(self, case: Any) -> None:
        self.shares.cases += 1
        self.kind.count(self.shares, case)

    def _judge(self, law: Law, drawn: Any) -> None:
        found = self._found[law.name]
        case = law.adapt(drawn, self.domain)
        if case is None or case in found.seen:
            return
        found.seen.add(case)
        start = time.perf_counter()
        verdict = self.verdict(law, case)
        found.result.seconds += time.perf_counter() - start
        self._record(found, case, verdict)

    def _record(self, found: _Found, case: Any, verdict: Verdict) -> None:
        result = found.result
        for remark in verdict.remarks:
            result.remarks[remark] = result.remarks.get(remark, 0) + 1
        match verdict.status:
            case "held":
                result.examples += 1
                self.shares.checks += 1
                if verdict.used > result.used:
                    result.used, result.worst_case = verdict.used, case
            case "vacuous":
                result.vacuous += 1
                self.shares.vacuous += 1
            case "refused":
                result.refused += 1
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
                found.broken.setdefault(trouble.kind, {})[case] = trouble
            case "inapplicable":
                pass

    def shrink_failures(self, known: list[Failure]) -> None:
        """Shrink each kind of failure of each law, and add the new ones to ``known``."""
        for law in self.laws:
            found = self._found[law.name]
            for kind, cases in found.broken.items():
                expected = known_fault(self.subject.target, law.name, kind)
                if expected is not None:
                    found.result.known = expected.note
                    continue
                self.progress(
                    Progress(
                        target=self.subject.target.name,
                        stage="shrink",
                        law=law.name,
                        dtype=self.dtype,
                    )
                )
                case, trouble = self._smallest(law, kind, cases, known)
                self._report(law, case, trouble, found, known)

    def _smallest(
        self, law: Law, kind: str, cases: dict[Any, Trouble], known: Sequence[Failure]
    ) -> tuple[Any, Trouble]:
        def trouble_of(case: Any) -> Trouble | None:
            if case.dtype != self.dtype or law.adapt(case, self.domain) != case:
                return None
            trouble = self.verdict(law, case).trouble
            return trouble if trouble is not None and trouble.kind == kind else None

        for failure in known:  # the same fault usually breaks other laws on the same small case
            again = law.adapt(failure.case.but(dtype=self.dtype), self.domain)
            if again is None:
                continue
            trouble = trouble_of(again)
            if trouble is not None:
                return again, trouble
        case = shrink(
            self.strategy,
            lambda drawn: law.adapt(drawn, self.domain),
            lambda case: trouble_of(case) is not None,
            set(cases),
            examples=self.request.examples,
            seed=self._seed,
        )
        return case, trouble_of(case) or cases.get(case) or next(iter(cases.values()))

    def _report(
        self,
        law: Law,
        case: Any,
        trouble: Trouble,
        found: _Found,
        known: list[Failure],
    ) -> None:
        from equivalence.replay import replay_line

        replay = replay_line(self.subject.target.name, case, law=law.name)
        found.result.counterexamples.append(
            Counterexample(case=case, trouble=trouble, replay=replay)
        )
        diagnosis = _diagnosis(self.subject, law, case, trouble)
        same = (diagnosis.kind, diagnosis.text)
        if any((f.diagnosis.kind, f.diagnosis.text) == same for f in known):
            return
        known.append(
            Failure(
                law=law.name,
                dtype=self.dtype,
                case=case,
                trouble=trouble,
                diagnosis=diagnosis,
                replay=replay,
            )
        )
        known.sort(key=lambda f: size_of(f.case))


def known_fault(target: Target, law: str, trouble: str) -> KnownFault | None:
    """The declared fault that explains this trouble under this law, if there is one."""
    for fault in target.declaration.known_faults:
        if (fault.law, fault.trouble) == (law, trouble):
            return fault
    return None


def _outdated(target: Target, domain: Any, laws: Sequence[Law]) -> list[Failure]:
    """Declared faults whose case no longer shows them: each is a failure of the declaration."""
    from equivalence.replay import replay_line

    subject = kind_named(target.declaration.kind).subject(target, domain)
    gone = []
    for fault in target.declaration.known_faults:
        law = next((law for law in laws if law.name == fault.law), None)
        if law is None or fault.case.dtype not in domain.dtypes:
            continue
        trouble = law.check(fault.case, subject).trouble
        if trouble is None or trouble.kind != fault.trouble:
            text = f"a known fault is gone, remove its entry: {fault.note}"
            gone.append(
                Failure(
                    law=fault.law,
                    dtype=fault.case.dtype,
                    case=fault.case,
                    trouble=Trouble(kind="declaration", text=text),
                    diagnosis=Diagnosis(kind="unknown", text=text),
                    replay=replay_line(target.name, fault.case, law=fault.law),
                )
            )
    return gone


def _diagnosis(subject: Any, law: Law, case: Any, trouble: Trouble) -> Diagnosis:
    own = kind_named(subject.target.declaration.kind).diagnose
    if own is not None:
        return own(subject, law.name, case, trouble)
    try:
        from equivalence.diagnose import diagnose
    except ImportError:
        return Diagnosis(kind="unknown", text=trouble.text)
    found: Diagnosis = diagnose(subject.target, subject.domain, law.name, case, trouble)
    return found


def _note_trials(target: Target, trials: Trials, result: TargetResult) -> None:
    """Crashes in trials and refused declarations are failures with their tiny case."""
    from equivalence.replay import replay_line

    agreement = all_laws(result.kind)[0].name
    for case, outcome in trials.crashes[:1]:
        kind = {"died": "crash", "hung": "hang", "memory": "memory"}[outcome.status]
        result.failures.append(
            Failure(
                law=agreement,
                dtype=case.dtype,
                case=case,
                trouble=Trouble(kind=kind, text=outcome.text),
                diagnosis=Diagnosis(kind="crash", text=outcome.text),
                replay=replay_line(target.name, case),
            )
        )
    for case, text in trials.contradictions:
        result.failures.append(
            Failure(
                law=agreement,
                dtype=case.dtype,
                case=case,
                trouble=Trouble(kind="declaration", text=text),
                diagnosis=Diagnosis(kind="refusal", text=text),
                replay=replay_line(target.name, case),
            )
        )
    if trials.refuses_grouped and ("enable_gqa" in target.options or target.declaration.grouped):
        text = "every grouped case was refused: " + trials.not_exercised.get("grouped heads", "")
        case = AttentionCase(num_kv_heads=2, group_size=2)
        result.failures.append(
            Failure(
                law="agrees-with-float64",
                dtype=case.dtype,
                case=case,
                trouble=Trouble(kind="refusal", text=text),
                diagnosis=Diagnosis(kind="refusal", text=text),
                replay=replay_line(target.name, case),
            )
        )
