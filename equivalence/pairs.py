"""Formulations against each other: a graph whose edges agree within the sum of two bounds.

No edge consults float64 attention for its verdict: it supplies only the width of the bounds. An
implementation that shares a mistake with the reference still disagrees with the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from equivalence.bounds import Allowance
from equivalence.compare import compare
from equivalence.domain import Domain, in_order
from equivalence.dtypes import DTYPES
from equivalence.engine import Progress, Request
from equivalence.kinds import kind_named
from equivalence.outcome import Outcome, Target
from equivalence.results import Shares
from equivalence.search import explore, polish, size_of
from equivalence.subject import Subject
from equivalence.verdict import Trouble


@dataclass(slots=True, kw_only=True)
class Edge:
    """Two formulations: cases compared, outputs equal bit for bit, and the worst part of a bound.

    ``case`` and ``trouble`` are those of the smallest case on which the two disagree.
    """

    first: str
    second: str
    compared: int = 0
    vacuous: int = 0
    equal: int = 0
    used: float = 0.0
    broken: int = 0
    case: Any = None
    trouble: Trouble | None = None

    @property
    def equal_share(self) -> float:
        """Share of the compared cases on which the outputs are equal bit for bit."""
        return self.equal / self.compared if self.compared else 0.0


@dataclass(slots=True, kw_only=True)
class PairsResult:
    """All edges of a run, and what the broken ones say about who is odd."""

    names: list[str]
    edges: list[Edge] = field(default_factory=list)
    shares: Shares = field(default_factory=Shares)
    not_exercised: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False

    @property
    def held(self) -> bool | None:
        """None when no pair was compared."""
        if any(edge.broken for edge in self.edges):
            return False
        return True if any(edge.compared - edge.vacuous for edge in self.edges) else None

    @property
    def odd(self) -> list[str]:
        """The formulations that disagree with most of the others, if such a set exists."""
        wrong = dict.fromkeys(self.names, 0)
        compared = dict.fromkeys(self.names, 0)
        for edge in self.edges:
            for name in (edge.first, edge.second):
                compared[name] += bool(edge.compared)
                wrong[name] += bool(edge.broken)
        return [name for name in self.names if wrong[name] and 2 * wrong[name] > compared[name]]


def check_pairs(
    targets: Sequence[Target],
    request: Request | None = None,
    progress: Callable[[Progress], None] = lambda _: None,
) -> PairsResult:
    """Draw cases that as many of ``targets`` as possible take, and compare every pair.

    Ctrl-C ends the search and keeps what is known.
    """
    request = request or Request()
    result = PairsResult(names=[target.name for target in targets])
    result.edges = [Edge(first=a.name, second=b.name) for a, b in combinations(targets, 2)]
    try:
        _compare_all(targets, request, result, progress)
    except KeyboardInterrupt:
        result.interrupted = True
    return result


def _compare_all(
    targets: Sequence[Target],
    request: Request,
    result: PairsResult,
    progress: Callable[[Progress], None],
) -> None:
    subjects: dict[str, Subject] = {}
    for target in targets:
        trials = kind_named("attention").trials(target, request.dtypes)
        if trials.base is None:
            result.not_exercised[target.name] = trials.not_exercised.get("anything", "")
        else:
            subjects[target.name] = Subject(target, trials.domain)
    wanted = request.dtypes or DTYPES
    formats = [d for d in wanted if any(d in s.domain.dtypes for s in subjects.values())]
    for number, dtype in enumerate(formats):
        graph = _Graph(subjects, result, dtype)
        domain = common_domain([s.domain for s in subjects.values()], dtype)
        done = 0

        def visit(case: Any, graph: _Graph = graph, dtype: str = dtype) -> None:
            nonlocal done
            done += 1
            result.shares.cases += 1
            kind_named("attention").count(result.shares, case)
            graph.visit(case)
            progress(
                Progress(
                    target="pairs", stage="search", dtype=dtype, done=done, total=request.examples
                )
            )

        deadline = None
        if request.seconds is not None:
            deadline = time.monotonic() + request.seconds / (len(formats) - number)
        explore(
            kind_named("attention").strategy(domain),
            visit,
            examples=request.examples,
            seed=request.seed * len(DTYPES) + DTYPES.index(dtype),
            deadline=deadline,
        )
        graph.shrink()


def common_domain(domains: Sequence[Domain], dtype: str) -> Domain:
    """What some pair could take: every feature that two of ``domains`` offer, in one dtype."""

    def shared(name: str) -> tuple[Any, ...]:
        offered = [getattr(d, name) for d in domains]
        values = [value for options in offered for value in options]
        return tuple(dict.fromkeys(v for v in values if values.count(v) >= 2)) or offered[0]

    def twice(name: str) -> bool:
        return sum(bool(getattr(d, name)) for d in domains) >= 2

    return Domain(
        dtypes=(dtype,),
        head_orders=shared("head_orders"),
        causal=shared("causal"),
        masks=tuple(m for m in ("bool", "float") if sum(m in d.masks for d in domains) >= 2),
        mask_and_causal=twice("mask_and_causal"),
        windows=tuple(w for w in ("int", "pair") if sum(w in d.windows for d in domains) >= 2),
        scale=twice("scale"),
        softcap=twice("softcap"),
        sinks=twice("sinks"),
        alibi=twice("alibi"),
        kv_lengths=twice("kv_lengths"),
    )


class _Graph:
    """Runs every formulation on a case once, and compares all pairs of answers."""

    def __init__(self, subjects: dict[str, Subject], result: PairsResult, dtype: str) -> None:
        self.subjects = {n: s for n, s in subjects.items() if dtype in s.domain.dtypes}
        self.result = result
        self.fresh: set[int] = set()

    def answers(self, case: Any) -> dict[str, Outcome]:
        """The usable outputs for ``case``; who refuses it, or was not asked, is left out."""
        found = {}
        for name, subject in self.subjects.items():
            if not takes(subject.domain, case) or subject.target.supports(case) is not True:
                continue
            inputs = subject.inputs(case)
            outcome = subject.call(inputs)
            if subject.unusable(inputs, outcome) is None:
                found[name] = outcome
        return found

    def visit(self, case: Any) -> None:
        found = self.answers(case)
        for place, edge in enumerate(self.result.edges):
            if edge.first not in found or edge.second not in found:
                continue
            edge.compared += 1
            facts = self._compared(edge, case, found)
            first, second = found[edge.first], found[edge.second]
            assert first.stored is not None
            assert second.stored is not None
            edge.equal += first.stored.tobytes() == second.stored.tobytes()
            if facts is None:
                edge.vacuous += 1
                self.result.shares.vacuous += 1
                continue
            self.result.shares.checks += 1
            edge.used = max(edge.used, facts[0])
            if facts[1] is not None:
                edge.broken += 1
                if edge.case is None or size_of(case) < size_of(edge.case):
                    edge.case, edge.trouble = case, facts[1]
                    self.fresh.add(place)

    def _compared(
        self, edge: Edge, case: Any, found: dict[str, Outcome]
    ) -> tuple[float, Trouble | None] | None:
        """(used, trouble or None), or None where the comparison is vacuous."""
        one, other = self.subjects[edge.first], self.subjects[edge.second]
        inputs = one.inputs(case)
        mine, theirs = one.allowance(inputs), other.allowance(inputs)
        both = Allowance(
            allowed=mine.allowed + theirs.allowed,
            furthest=mine.furthest,
            natural=mine.natural,
            in_domain=mine.in_domain & theirs.in_domain,
        )
        facts = compare(
            found[edge.first].output,
            found[edge.second].output,
            both,
            dtype=case.dtype,
            rows=one.exact(inputs).seen > 0,
        )
        if facts.passes and facts.vacuous:
            return None
        if facts.passes:
            return facts.used, None
        verdict = one.verdict(facts, inputs, kind="disagreement", than=edge.second)
        return min(facts.used, float(np.finfo(np.float64).max)), verdict.trouble

    def shrink(self) -> None:
        """Make the smallest case of each newly broken edge simpler, as far as it stays broken."""
        for place in sorted(self.fresh):
            edge = self.result.edges[place]

            def trouble_of(case: Any, edge: Edge = edge) -> Trouble | None:
                found = self.answers(case)
                if edge.first not in found or edge.second not in found:
                    return None
                facts = self._compared(edge, case, found)
                return facts[1] if facts is not None else None

            deadline = time.monotonic() + 2.0
            edge.case = polish(
                edge.case, lambda case: trouble_of(case) is not None, deadline=deadline
            )
            edge.trouble = trouble_of(edge.case) or edge.trouble


def takes(domain: Domain, case: Any) -> bool:
    """Whether a case that was drawn from another domain lies inside ``domain``."""
    mask = case.mask
    band = "int" if isinstance(case.window, int) else "pair"
    lengths = case.kv_len if domain.square else None
    return all(
        (
            case.head_order in domain.head_orders or case.num_kv_heads == 1 or case.group_size == 1,
            domain.batch_size[0] <= case.batch_size <= domain.batch_size[1],
            domain.group_size[1] > 1 or case.group_size == 1,
            domain.num_kv_heads[1] > 1 or case.num_kv_heads == 1,
            domain.head_dims is None or case.head_dim in domain.head_dims,
            domain.kv_lens is None or case.kv_len in domain.kv_lens,
            domain.q_lens is None or case.q_len in domain.q_lens,
            lengths is None or case.q_len == lengths,
            domain.longer_queries or case.q_len <= case.kv_len,
            domain.value_head_dim_differs or case.v_dim == case.head_dim,
            case.causal in domain.causal or _corner_free(case, domain),
            mask is None or (mask.form in domain.masks and mask.axes in domain.mask_axes),
            mask is None or case.causal is None or domain.mask_and_causal,
            case.window is None or band in domain.windows,
            in_order(case, domain) == case,
            domain.scale or case.scale is None,
            domain.softcap or case.softcap is None,
            domain.sinks or not case.sinks,
            domain.alibi or not case.alibi,
            domain.kv_lengths or case.kv_lengths is None,
            case.memory in domain.memories,
        )
    )


def _corner_free(case: Any, domain: Domain) -> bool:
    """A square causal case has only one corner, so either declaration takes it."""
    return case.q_len == case.kv_len and any(c is not None for c in domain.causal)
