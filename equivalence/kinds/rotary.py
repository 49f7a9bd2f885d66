"""The rotary kind: ``fn(x, positions, *, theta=10000.0, ...) -> x``, positions made rotations."""

from __future__ import annotations

from typing import Final

from equivalence.calling import opener
from equivalence.domain import REAL_HEAD_DIMS
from equivalence.kinds import Kind
from equivalence.results import Shares
from equivalence.rope.case import RotaryCase
from equivalence.rope.diagnosis import diagnose
from equivalence.rope.subject import RotarySubject
from equivalence.rope.trials import try_rotary_features
from equivalence.strategies.rotary import rotary_cases
from equivalence.strategies.rotary_edges import rotary_edges


def _count(shares: Shares, case: RotaryCase) -> None:
    shares.kv_lens.append(case.seq_len)
    shares.real_head_dim += case.head_dim in REAL_HEAD_DIMS


KIND: Final = Kind(
    name="rotary",
    case_type=RotaryCase,
    open=opener("rotary"),
    trials=try_rotary_features,
    subject=RotarySubject,
    strategy=rotary_cases,
    count=_count,
    diagnose=diagnose,
    edges=rotary_edges,
)
