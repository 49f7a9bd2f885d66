"""What a search that knows nothing finds in coremltools 9.0 (docs/evidence/coreml.md)."""

from __future__ import annotations

from typing import Any, Final

from equivalence.converters.case import ConverterCase
from equivalence.converters.formulations import FUSED
from equivalence.coreml.conversion import TARGETS
from equivalence.declaration import KnownFault
from equivalence.masks import Mask

FLEXIBLE: Final = ("range", "enumerated")
GQA_NOTE: Final = (
    "coremltools 9.0 drops enable_gqa: with a flexible length it tiles whole blocks of heads, so "
    "query head h reads h % num_kv_heads (apple/coremltools#2855)"
)


def _gqa(law: str, **more: Any) -> KnownFault:
    case = ConverterCase(
        formulation="sdpa_gqa", num_kv_heads=2, group_size=2, kv_len=2, shapes="range", **more
    )
    where = {"formulation": ("sdpa_gqa",), "shapes": FLEXIBLE}
    return KnownFault(law=law, trouble="outside-bound", case=case, note=GQA_NOTE, where=where)


def _empty_row(note: str, where: dict[str, tuple[Any, ...]], **fields: Any) -> KnownFault:
    return KnownFault(
        law="empty-rows-as-in-source",
        trouble="masked-rows",
        case=ConverterCase(mask=Mask(empty_rows=1), **fields),
        note=note,
        where=where,
    )


BOTH_ROUTES: Final = (
    _gqa("converted-agrees"),
    _gqa("other-lengths-agree", example_len=3),
    _empty_row(
        "before iOS18, SDPA adds -3e4 where its boolean mask hides: a row that sees no key is an "
        "average, and zero in torch",
        {"formulation": FUSED, "target": TARGETS[:3]},
        formulation="sdpa",
        target="iOS17",
    ),
    _empty_row(
        "from iOS18 on, the definition of MIL's scaled_dot_product_attention makes a row that "
        "sees no key NaN; it is zero in torch",
        {"formulation": FUSED, "target": (None, *TARGETS[3:])},
        formulation="sdpa",
    ),
)
LOST_WRITE: Final = KnownFault(
    law="state-writes-land",
    trouble="positions",
    case=ConverterCase(formulation="cache_indexed", kv_len=2, dtype="float16"),
    note="on the trace route, cache[:, :, position] = token writes no state, and says nothing",
    where={"formulation": ("cache_indexed",), "route": (None, "trace")},
)
TRACE_ONLY: Final = (
    _empty_row(
        "in float32, masked_fill with -inf becomes -3.4e38: a row that sees no key is an average, "
        "and NaN in torch",
        {"dtype": ("float32",)},
        target="iOS16",
    ),
    LOST_WRITE,
)
