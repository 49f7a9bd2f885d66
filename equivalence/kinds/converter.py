"""The converter kind: ``convert(module, example_inputs) -> callable``, with a graph to audit."""

from __future__ import annotations

from typing import Final

from equivalence.converters.calling import open_converter
from equivalence.converters.case import ConverterCase
from equivalence.converters.diagnosis import diagnose
from equivalence.converters.domain import without_fault
from equivalence.converters.subject import ConverterSubject
from equivalence.converters.trials import domain_of, try_converter
from equivalence.domain import REAL_HEAD_DIMS
from equivalence.kinds import Kind
from equivalence.results import Shares
from equivalence.strategies.converters import converter_cases, covering_cases


def _count(shares: Shares, case: ConverterCase) -> None:
    shares.kv_lens.append(case.kv_len)
    shares.grouped += case.num_kv_heads >= 2 and case.group_size >= 2
    shares.real_head_dim += case.head_dim in REAL_HEAD_DIMS


KIND: Final = Kind(
    name="converter",
    case_type=ConverterCase,
    open=open_converter,
    trials=try_converter,
    domain_of=domain_of,
    subject=ConverterSubject,
    strategy=converter_cases,
    count=_count,
    diagnose=diagnose,
    spare=without_fault,
    pairs=covering_cases,
)
