"""Core ML conversion with the fold, as a converter that can be put under test.

equivalence check equivalence.passes.converter:folded
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from torch import Tensor, nn

from equivalence.converters.axes import DynamicShapes
from equivalence.converters.case import ConverterCase
from equivalence.coreml.conversion import TARGETS, argument_names, program_of
from equivalence.coreml.converted import Converted
from equivalence.declaration import converter as declare
from equivalence.passes.fold_queries import fold_queries

# What coremltools 9.0 converts wrongly without any fold; the pass is judged on the rest.
WRONG_BEFORE: Final = ("sdpa_gqa", "cache_indexed")


def _converted_rightly(case: ConverterCase) -> bool | str:
    if case.formulation in WRONG_BEFORE:
        return f"coremltools 9.0 converts {case.formulation} wrongly, folded or not"
    if case.mask is not None and case.mask.empty_rows:
        return "coremltools 9.0 masks with finite constants, so a row that sees no key differs"
    return True


@declare(
    dtypes=("float32", "float16"),
    profile="graph",
    dynamic=True,
    targets=TARGETS,
    supports=_converted_rightly,
)
def folded(
    module: nn.Module,
    example_inputs: Sequence[Tensor],
    *,
    dynamic_shapes: DynamicShapes | None = None,
    target: str = "iOS18",
) -> Converted:
    """Convert by trace, fold what can be folded, and evaluate the graph in mode wide."""
    program = program_of(module, example_inputs, dynamic_shapes=dynamic_shapes, target=target)
    fold_queries(program)
    return Converted(program, argument_names(module, len(example_inputs)), mode="wide")
