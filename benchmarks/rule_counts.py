"""Which rule catches which broken kernel, and which right backend it rejects.

Both on the usual shapes (``benchmarks.usual_suite``) and on the very cases that a check draws, so
that what is due to a rule can be told from what is due to its cases. Each case is called once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from benchmarks.comparison_rules import RULES, Part
from benchmarks.plain_cases import refusal
from benchmarks.usual_suite import USUAL
from equivalence.calling import LocalTarget
from equivalence.case import AttentionCase
from equivalence.domain import Domain
from equivalence.dtypes import Array, format_of, rounded
from equivalence.gradients import gradients
from equivalence.inputs import AttentionInputs, attention_inputs
from equivalence.kinds import kind_named
from equivalence.law_search import LawSearch
from equivalence.outcome import Outcome
from equivalence.registry import OURS
from equivalence.request import Request
from equivalence.subject import Subject
from tests.broken.attention_base import broken
from tests.broken.attention_gradients import backward_with
from tests.broken.attention_green import GREEN
from tests.broken.attention_kernels import COLLECTION
from tests.broken.entry import Broken

EAGER: Final = "torch.repeat_kv"
SUITES: Final = ("usual", "drawn")


class _Listing(LawSearch):
    """A search without laws: it lists the cases that it draws."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.drawn: list[AttentionCase] = []

    def _count(self, case: AttentionCase) -> None:
        self.drawn.append(case)


@dataclass(slots=True)
class Suites:
    """The cases of both suites, and what eager attention gives for each."""

    seed: int
    eager: LocalTarget
    _drawn: dict[str, list[AttentionCase]] = field(default_factory=dict)
    _right: dict[tuple[Any, ...], frozenset[str]] = field(default_factory=dict)
    _eager: dict[AttentionCase, tuple[Array, ...] | None] = field(default_factory=dict)

    def cases(self, suite: str, target: LocalTarget, domain: Domain) -> list[AttentionCase]:
        """The cases of ``suite`` that ``target`` takes, in the one dtype of ``domain``."""
        (dtype,) = domain.dtypes
        if suite == "usual":
            cases = [_aligned(case.but(dtype=dtype), domain) for case in USUAL]
            return [
                case
                for case in cases
                if case.causal in domain.causal and refusal(target, case) is None
            ]
        known = repr(domain)
        if known not in self._drawn:
            listing = _Listing(target, domain, [], Request(seed=self.seed))
            listing.explore(None)
            self._drawn[known] = listing.drawn
        return [case for case in self._drawn[known] if target.supports(case) is True]

    def rejected_of_right(
        self, case: AttentionCase, right: Subject, *, backward: bool
    ) -> frozenset[str]:
        """The rules that reject a right kernel; remembered by its declared profile."""
        key = (case, right.declared.profile, backward)
        if key not in self._right:
            found = parts(case, right, self, backward=backward)
            self._right[key] = frozenset(rejected_by(found or []))
        return self._right[key]

    def answer_of_eager(self, case: AttentionCase, upstream: Array | None) -> tuple[Array, ...]:
        """Output, and gradients for ``upstream``, of eager attention; NaN where it has none."""
        if upstream is not None:
            outcome = self.eager.call(attention_inputs(case), output_gradient=upstream)
            return _tensors(outcome)
        if case not in self._eager:
            self._eager[case] = _tensors(self.eager.call(attention_inputs(case)))
        return self._eager[case] or ()


def _aligned(case: AttentionCase, domain: Domain) -> AttentionCase:
    """A square causal case in the words of a target whose corner is the upper left one."""
    square = case.q_len == case.kv_len and case.kv_lengths is None
    if case.causal and square and "upper_left" in domain.causal:
        return case.but(causal="upper_left")
    return case


def _tensors(outcome: Outcome) -> tuple[Array, ...]:
    if outcome.stored is None:
        return ()
    return (outcome.output, *(outcome.gradients or ()))


def parts(
    case: AttentionCase, subject: Subject, suites: Suites, *, backward: bool
) -> list[Part] | None:
    """What the rules are given of one call; None where there is nothing that counts.

    A call that fails is a part that nothing accepts. Rows outside the domain of the profile do
    not count, nor rows without keys unless the target declares zeros for them.
    """
    inputs = subject.inputs(case)
    exact, allowance = subject.exact(inputs), subject.allowance(inputs)
    upstream = _upstream(case, subject) if backward else None
    outcome = subject.target.call(inputs, output_gradient=upstream)
    if outcome.status == "refused":
        return None
    counted = (exact.seen > 0) & allowance.in_domain
    if subject.declared.masked_rows == "zeros":
        counted |= exact.seen == 0
    if not counted.any():
        return None
    if subject.unusable(inputs, outcome) is not None:
        return [_failed(case.dtype)]
    sound = subject.judge(inputs, outcome).status != "broken"
    sound = sound and bool((outcome.output[counted & (exact.seen == 0)] == 0).all())
    eager = suites.answer_of_eager(case, upstream)
    found = [_part(outcome.output, exact.output, eager[:1], counted, case.dtype, sound)]
    if upstream is not None:
        found += _backward(inputs, outcome, subject, upstream, eager[1:])
    return found


def _upstream(case: AttentionCase, subject: Subject) -> Array | None:
    """A standard normal gradient of the output; None where the law of gradients has no say."""
    inputs = subject.inputs(case)
    exact, allowance = subject.exact(inputs), subject.allowance(inputs)
    whole = (exact.seen > 0).all() and allowance.in_domain.all()
    if case.sinks or case.memory == "expanded" or not whole:
        return None
    noise = np.random.default_rng([case.seed, 53]).normal(size=exact.output.shape)
    upstream = rounded(noise, case.dtype)
    right = gradients(inputs, exact, allowance.allowed, upstream, subject.profile(case.dtype))
    return upstream if right.largest_product < format_of(case.dtype).max_finite / 16 else None


def _backward(
    inputs: AttentionInputs,
    outcome: Outcome,
    subject: Subject,
    upstream: Array,
    eager: Sequence[Array],
) -> Iterator[Part]:
    exact = subject.exact(inputs)
    allowed = subject.allowance(inputs).allowed
    right = gradients(inputs, exact, allowed, upstream, subject.profile(inputs.dtype))
    for i, actual in enumerate(outcome.gradients or ()):
        with np.errstate(invalid="ignore"):
            sound = bool((np.abs(actual - right.exact[i]) <= right.allowed[i]).all())
        everything = np.ones(actual.shape[:-1], bool)
        yield _part(actual, right.exact[i], eager[i : i + 1], everything, inputs.dtype, sound)


def _part(
    actual: Array,
    exact: Array,
    eager: Sequence[Array],
    counted: Array,
    dtype: str,
    sound: bool,
) -> Part:
    expected = rounded(exact, dtype)[counted].ravel()
    theirs = eager[0][counted].ravel() if len(eager) else np.full(expected.shape, np.nan)
    return Part(
        actual=actual[counted].ravel(), expected=expected, eager=theirs, dtype=dtype, sound=sound
    )


def _failed(dtype: str) -> Part:
    one = np.ones(1)
    return Part(actual=np.full(1, np.nan), expected=one, eager=one, dtype=dtype, sound=False)


def rejected_by(found: Sequence[Part]) -> set[str]:
    """The rules that do not accept every part."""
    return {rule.name for rule in RULES if not all(rule.accepts(part) for part in found)}


@dataclass(slots=True)
class Rejections:
    """What the rules reject of one kernel on one suite.

    judged: cases. first: for each rule the first case that it rejects, from 1. told: the first
    of those on which it accepts a right kernel, so that the rejection says something. count: of
    the cases that it rejects.
    """

    judged: int = 0
    first: dict[str, int] = field(default_factory=dict)
    told: dict[str, int] = field(default_factory=dict)
    count: dict[str, int] = field(default_factory=lambda: {rule.name: 0 for rule in RULES})


def rejections(
    target: LocalTarget,
    suite: str,
    dtype: str,
    suites: Suites,
    *,
    right: LocalTarget | None = None,
    backward: bool = False,
) -> Rejections:
    """Give every case of ``suite`` that ``target`` takes to every rule.

    right: the kernel without the mistake, with the same declaration.
    """
    trials = kind_named("attention").trials(target, (dtype,))
    all_of_it = Rejections()
    if trials.base is None or not trials.domain.dtypes:
        return all_of_it
    domain = trials.domain.but(dtypes=(dtype,))
    subject = Subject(target, domain)
    other = None if right is None else Subject(right, domain)
    for case in suites.cases(suite, target, domain):
        found = parts(case, subject, suites, backward=backward)
        if found is None:
            continue
        all_of_it.judged += 1
        names = rejected_by(found)
        excused: frozenset[str] = frozenset()
        if other is not None and names:
            excused = suites.rejected_of_right(case, other, backward=backward)
        for name in names:
            all_of_it.first.setdefault(name, all_of_it.judged)
            all_of_it.count[name] += 1
            if name not in excused:
                all_of_it.told.setdefault(name, all_of_it.judged)
    return all_of_it


def right_kernel(entry: Broken) -> LocalTarget:
    """The kernel that ``entry`` is an edit of, declared like it."""
    kernel = backward_with("") if entry.declared.get("gradients") else broken()
    facts = {**entry.declared, "lse": None}
    return LocalTarget.of(kernel, name="right", facts=facts)


def eager_target() -> LocalTarget:
    """Eager attention, every intermediate value stored in the dtype."""
    return next(backend for backend in OURS if backend.name == EAGER).load()


def subjects() -> Iterator[tuple[str, str, LocalTarget, Broken | None]]:
    """What is counted: the kind of row, its name, the target, and its entry in tests/broken."""
    for entry in (*COLLECTION, *GREEN):
        target = LocalTarget.of(entry.kernel, name=entry.name, facts=entry.declared)
        yield ("kernel" if entry in COLLECTION else "green"), entry.name, target, entry
    for backend in OURS:
        if backend.name.startswith(("torch.", "numpy.")) and backend.kind == "attention":
            yield "green", backend.name, backend.load(), None


def run(
    rows: list[dict[str, Any]], dtypes: Sequence[str], seed: int, keep: Callable[[], None]
) -> None:
    """Add the rows that are not there yet."""
    done = {(row["name"], row["dtype"], row["suite"]) for row in rows}
    for dtype in dtypes:
        suites = Suites(seed=seed, eager=eager_target())
        for kind, name, target, entry in subjects():
            if dtype not in (entry.dtypes if entry else (target.declaration.dtypes or (dtype,))):
                continue
            backward = entry is not None and bool(entry.declared.get("gradients"))
            for suite in SUITES:
                if (name, dtype, suite) in done:
                    continue
                found = rejections(
                    target,
                    suite,
                    dtype,
                    suites,
                    right=None if kind == "green" or entry is None else right_kernel(entry),
                    backward=backward,
                )
                about = {"kind": kind, "name": name, "dtype": dtype, "suite": suite}
                told: dict[str, Any] = {"alarms": found.count}
                if kind == "kernel":
                    told = {"first": found.first, "told": found.told}
                rows.append({**about, "cases": found.judged, **told})
            keep()
            print(rows[-1], flush=True)
