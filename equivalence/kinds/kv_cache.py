"""The kv_cache kind: a factory of caches, put under test by programs."""

from __future__ import annotations

from typing import Final

from equivalence.caches.case import CacheCase
from equivalence.caches.diagnosis import diagnose
from equivalence.caches.subject import CacheSubject
from equivalence.caches.trials import try_cache
from equivalence.calling import opener
from equivalence.domain import REAL_HEAD_DIMS
from equivalence.kinds import Kind
from equivalence.results import Shares
from equivalence.strategies.caches import cache_cases


def _count(shares: Shares, case: CacheCase) -> None:
    shares.kv_lens.append(max(max(state.lengths) for state in case.states))
    shares.grouped += case.num_kv_heads >= 2 and case.group_size >= 2
    shares.real_head_dim += case.head_dim in REAL_HEAD_DIMS


KIND: Final = Kind(
    name="kv_cache",
    case_type=CacheCase,
    open=opener("kv_cache"),
    trials=try_cache,
    subject=CacheSubject,
    strategy=cache_cases,
    count=_count,
    diagnose=diagnose,
)
