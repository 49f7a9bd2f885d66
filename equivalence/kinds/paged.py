"""The paged kind, pages: ``fn(query, key_pages, value_pages, *, page_table, kv_lengths, ...)``."""

from __future__ import annotations

from typing import Any, Final

from equivalence.calling import opener
from equivalence.domain import REAL_HEAD_DIMS
from equivalence.kinds import Kind
from equivalence.outcome import Target
from equivalence.packed.case import PagedCase
from equivalence.packed.diagnosis import diagnose
from equivalence.packed.making import paged_inputs
from equivalence.packed.trials import try_paged
from equivalence.piecewise import PiecewiseSubject
from equivalence.results import Shares
from equivalence.strategies.packed import paged_cases


def _subject(target: Target, domain: Any) -> PiecewiseSubject:
    return PiecewiseSubject(target, domain, paged_inputs)


def _count(shares: Shares, case: PagedCase) -> None:
    shares.kv_lens.append(max(case.kv_lengths))
    shares.grouped += case.num_kv_heads >= 2 and case.group_size >= 2
    shares.real_head_dim += case.head_dim in REAL_HEAD_DIMS


KIND: Final = Kind(
    name="paged",
    case_type=PagedCase,
    open=opener("paged"),
    trials=try_paged,
    subject=_subject,
    strategy=paged_cases,
    count=_count,
    diagnose=diagnose,
)
