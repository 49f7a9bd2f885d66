"""A graph pass for coremltools, gated: a right version, and one that forgets to look.

    equivalence check examples/converter_pass.py:careful --examples 25      holds
    equivalence check examples/converter_pass.py:careless --examples 25     scale: ...

The pass moves a scale from the scores to the queries, `(q @ k) * c` to `(q * c) @ k`, which saves
a pass over the scores. The careless one leaves the product behind, and so scales twice.
"""

from collections.abc import Sequence

from torch import Tensor, nn

import equivalence
from equivalence.converters.case import ConverterCase
from equivalence.coreml.conversion import argument_names, program_of
from equivalence.coreml.converted import Converted
from equivalence.coreml.quiet import coremltools

coremltools()  # takes seconds, and belongs to no call
FORMULATIONS = ("repeat_kv", "q_fold_decode", "q_fold_prefill", "broadcast", "einsum")


def scale_into_queries(program, *, keep_the_product: bool = False) -> int:
    """Move scales in `program` (pymil), in place; how many were moved."""
    from coremltools.converters.mil.mil import Builder

    moved = 0
    block = program.functions["main"]
    for op in list(block.operations):
        if op.op_type != "mul" or op.y.val is None or op.y.val.size != 1:
            continue
        product = op.x.op
        if product is None or product.op_type != "matmul" or len(op.x.child_ops) != 1:
            continue
        flags = {"transpose_x": product.transpose_x.val, "transpose_y": product.transpose_y.val}
        with block:
            query = Builder.mul(x=product.x, y=op.y.val, before_op=product)
            scores = Builder.matmul(x=query, y=product.y, **flags, before_op=op)
            if keep_the_product:  # the mistake: what is scaled already is scaled again
                scores = Builder.mul(x=scores, y=op.y.val, before_op=op)
        block.replace_uses_of_var_after_op(anchor_op=op, old_var=op.outputs[0], new_var=scores)
        block.remove_ops([op, product])
        moved += 1
    return moved


def converted(module: nn.Module, example_inputs: Sequence[Tensor], target: str, **how) -> Converted:
    """The module converted, and the pass run behind coremltools' own."""
    program = program_of(module, example_inputs, target=target)
    scale_into_queries(program, **how)
    return Converted(program, argument_names(module, len(example_inputs)), mode="wide")


def supports(case: ConverterCase) -> bool | str:
    """What the pass is about."""
    if case.formulation not in FORMULATIONS:
        return f"the pass is about {', '.join(FORMULATIONS)}"
    if case.mask is not None and case.mask.empty_rows:
        return "coremltools 9.0 hides keys by a finite number, so a row that sees none differs"
    return True


FACTS = {"dtypes": ("float32",), "profile": "graph", "targets": ("iOS18",), "supports": supports}


@equivalence.converter(**FACTS)
def careful(module: nn.Module, example_inputs: Sequence[Tensor], *, target: str = "iOS18"):
    """The pass as it should be."""
    return converted(module, example_inputs, target)


@equivalence.converter(**FACTS)
def careless(module: nn.Module, example_inputs: Sequence[Tensor], *, target: str = "iOS18"):
    """The pass with its mistake."""
    return converted(module, example_inputs, target, keep_the_product=True)
