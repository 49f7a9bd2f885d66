"""Core AI, Apple's successor runtime, whose Linux wheel executes on the CPU.

Its float16 products accumulate in float16, so its profile is its own. In a worker process: an
indexed write to a state aborts it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from torch import Tensor, nn

from equivalence.converters.axes import DynamicShapes
from equivalence.converters.case import ConverterCase
from equivalence.converters.formulations import FUSED
from equivalence.coreai.converted import Converted, convert
from equivalence.declaration import KnownFault
from equivalence.declaration import converter as declare
from equivalence.masks import Mask


def _aborts(law: str, **fields: Any) -> KnownFault:
    return KnownFault(
        law=law,
        trouble="crash",
        case=ConverterCase(formulation="cache_indexed", **fields),
        note="cache[:, :, position] = token ends the process: Core AI 1.0.0b3 aborts on its write",
        where={"formulation": ("cache_indexed",)},
    )


KNOWN: Final = (
    _aborts("converted-agrees"),
    _aborts("state-writes-land", kv_len=2),
    KnownFault(
        law="empty-rows-as-in-source",
        trouble="masked-rows",
        case=ConverterCase(formulation="sdpa_gqa", mask=Mask(empty_rows=1)),
        note="a row that sees no key is a mean of the hidden values, where torch has zeros",
        where={"formulation": FUSED},
    ),
)


@declare(dtypes=("float32", "float16"), profile="core_ai", dynamic=True, known_faults=KNOWN)
def export(
    module: nn.Module,
    example_inputs: Sequence[Tensor],
    *,
    dynamic_shapes: DynamicShapes | None = None,
) -> Converted:
    """Convert through torch.export; executed by Core AI's own CPU runtime."""
    return convert(module, example_inputs, dynamic_shapes=dynamic_shapes)
