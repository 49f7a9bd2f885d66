"""The attention kind: ``fn(query, key, value, ...)``, with grouped heads, masks and options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from equivalence.calling import LocalTarget
from equivalence.case import AttentionCase
from equivalence.diagnosis import diagnose
from equivalence.diagnosis.related import known_in_other_calls
from equivalence.domain import REAL_HEAD_DIMS, Domain, without_fault
from equivalence.kinds import Kind
from equivalence.laws import law_named
from equivalence.outcome import Target
from equivalence.plainest import plainest
from equivalence.probes import battery, card_lines
from equivalence.results import Diagnosis, Shares
from equivalence.strategies.attention import attention_cases
from equivalence.strategies.edges import attention_edges
from equivalence.strategies.pairs import attention_pairs
from equivalence.strategies.plain import attention_admits, attention_within
from equivalence.subject import Subject
from equivalence.trials import Trials, try_features
from equivalence.verdict import Trouble


def _open(function: Callable[..., Any], name: str, facts: Mapping[str, Any]) -> Target:
    return LocalTarget.of(function, name=name, facts=facts)


def _trials(target: Target, dtypes: tuple[str, ...] | None) -> Trials:
    return try_features(target, dtypes=dtypes)


def _count(shares: Shares, case: AttentionCase) -> None:
    shares.kv_lens.append(case.kv_len)
    shares.grouped += case.num_kv_heads >= 2 and case.group_size >= 2
    shares.real_head_dim += case.head_dim in REAL_HEAD_DIMS


def _diagnose(subject: Subject, _law: str, case: AttentionCase, trouble: Trouble) -> Diagnosis:
    target, domain = subject.target, subject.domain
    return diagnose(target, domain, case, trouble, lambda: battery(target, domain, case.dtype))


def _retold(
    subject: Subject, law: str, case: AttentionCase, known: Sequence[Diagnosis]
) -> Diagnosis | None:
    check = law_named(law).check
    return known_in_other_calls(
        subject.target, case, lambda one, heard: check(one, Subject(heard, subject.domain)), known
    )


def _identify(target: Target, domain: Domain, dtype: str) -> list[str]:
    return card_lines(battery(target, domain, dtype))


KIND: Final = Kind(
    name="attention",
    case_type=AttentionCase,
    open=_open,
    trials=_trials,
    subject=Subject,
    strategy=attention_cases,
    count=_count,
    diagnose=_diagnose,
    retold=_retold,
    spare=without_fault,
    identify=_identify,
    pairs=attention_pairs,
    edges=attention_edges,
    admits=attention_admits,
    within=attention_within,
    plainest=plainest,
)
