"""The varlen kind, packed tokens: ``fn(query, key, value, *, cu_seqlens_q, cu_seqlens_k, ...)``."""

from __future__ import annotations

from typing import Any, Final

from equivalence.calling import opener
from equivalence.domain import REAL_HEAD_DIMS
from equivalence.kinds import Kind
from equivalence.outcome import Target
from equivalence.packed.case import VarlenCase
from equivalence.packed.diagnosis import diagnose
from equivalence.packed.making import varlen_inputs
from equivalence.packed.trials import try_varlen
from equivalence.piecewise import PiecewiseSubject
from equivalence.results import Shares
from equivalence.strategies.packed import varlen_cases


def _subject(target: Target, domain: Any) -> PiecewiseSubject:
    return PiecewiseSubject(target, domain, varlen_inputs)


def _count(shares: Shares, case: VarlenCase) -> None:
    shares.kv_lens.append(max(case.kv_lens))
    shares.grouped += case.num_kv_heads >= 2 and case.group_size >= 2
    shares.real_head_dim += case.head_dim in REAL_HEAD_DIMS


KIND: Final = Kind(
    name="varlen",
    case_type=VarlenCase,
    open=opener("varlen"),
    trials=try_varlen,
    subject=_subject,
    strategy=varlen_cases,
    count=_count,
    diagnose=diagnose,
)
