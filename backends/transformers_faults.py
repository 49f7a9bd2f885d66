"""What a search finds in the attention functions of transformers, shown again on every run."""

from __future__ import annotations

from typing import Any, Final

from equivalence.case import AttentionCase
from equivalence.declaration import KnownFault
from equivalence.masks import Mask

FLOAT64_ROWS: Final = KnownFault(
    law="masked-rows",
    trouble="masked-rows",
    case=AttentionCase(kv_len=2, dtype="float64", mask=Mask(empty_rows=1)),
    where={"dtype": ("float64",)},
    note=(
        "transformers 5.24: eager softmaxes in float32 whatever the dtype, where the lowest "
        "float64 of its own mask is -inf: a row that sees no key is NaN, and the mean in float32"
    ),
)

LOWEST_FLOAT64: Final = KnownFault(
    law="agrees-with-float64",
    trouble="non-finite",
    case=AttentionCase(dtype="float64", mask=Mask(form="float", hidden="finfo.min", empty_rows=1)),
    where={"dtype": ("float64",), "mask.hidden": ("finfo.min",)},
    note=FLOAT64_ROWS.note,
)
FLOAT16_ROWS: Final = KnownFault(
    law="masked-rows",
    trouble="masked-rows",
    case=AttentionCase(
        batch_size=2,
        kv_len=3,
        dtype="float16",
        mask=Mask(empty_rows=1),
        values="outliers",
        seed=170,
    ),
    where={"dtype": ("float16",)},
    note=(
        "transformers 5.24: eager adds -65504 to the scores of hidden float16 keys, which does not "
        "swallow them: a row that sees no key still tells its keys apart"
    ),
)

EAGER: Final = (FLOAT64_ROWS, LOWEST_FLOAT64, FLOAT16_ROWS)


def _flex_fault(
    law: str, trouble: str, note: str, where: dict[str, tuple[Any, ...]], **mask: Any
) -> KnownFault:
    values = "ramp" if law == "hidden-keys-do-not-matter" else "steps"
    case = AttentionCase(group_size=2, kv_len=2, values=values, mask=Mask(**mask))
    return KnownFault(law=law, trouble=trouble, case=case, where=where, note=note)


BOOL_ADDED: Final = (
    "transformers 5.24: flex_attention adds a bool mask of rank 4 to the scores as 0 and 1"
)
FLEX: Final = (
    *(
        _flex_fault(law, trouble, BOOL_ADDED, {"mask.form": ("bool",)}, pattern="padding")
        for law, trouble in (
            ("agrees-with-float64", "outside-bound"),
            ("hidden-keys-do-not-matter", "hidden-keys"),
        )
    ),
    _flex_fault("masked-rows", "masked-rows", BOOL_ADDED, {"mask.form": ("bool",)}, empty_rows=1),
    _flex_fault(
        "agrees-with-float64",
        "outside-bound",
        "transformers 5.24: flex_attention reads the mask of head 0 for every head",
        {"mask.axes": ("h", "bh", "hq", "bhq")},
        pattern="padding",
        form="float",
        size=2,
        axes="h",
    ),
)
