"""The mla kind: ``fn(query_content, query_rotary, latent, key_rotary, w_uk, w_uv, *, scale)``."""

from __future__ import annotations

from typing import Final

from equivalence.calling import opener
from equivalence.kinds import Kind
from equivalence.latent.case import MlaCase
from equivalence.latent.diagnosis import diagnose
from equivalence.latent.subject import MlaSubject
from equivalence.latent.trials import try_features
from equivalence.results import Shares
from equivalence.strategies.mla import mla_cases
from equivalence.strategies.mla_edges import mla_edges

REAL_HEAD_DIM: Final = 64


def _count(shares: Shares, case: MlaCase) -> None:
    shares.kv_lens.append(case.kv_len)
    shares.grouped += case.num_heads >= 2  # all heads read one latent: heads can be mixed up
    shares.real_head_dim += case.head_dim >= REAL_HEAD_DIM


KIND: Final = Kind(
    name="mla",
    case_type=MlaCase,
    open=opener("mla"),
    trials=try_features,
    subject=MlaSubject,
    strategy=mla_cases,
    count=_count,
    diagnose=diagnose,
    edges=mla_edges,
)
