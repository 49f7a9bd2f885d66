"""masked_fill with -inf becomes -3.4e38, so a hidden row is an average

runtime: coremltools 9.0, torch 2.13.0
kind: disagreement
case: softmax of two scores, both filled with -inf; float32
got: filled with -3.4e+38
expected: filled with -inf
takes: seconds

torch gives NaN for such a row, which a model sees, or replaces. The converted program gives
1/2, 1/2: padding attends to everything and nothing shows. Law `empty-rows-as-in-source` finds it.
"""

import logging
import warnings

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
import coremltools as ct
import torch


class Module(torch.nn.Module):
    def forward(self, scores, hidden):
        return scores.masked_fill(hidden > 0, float("-inf")).softmax(-1)


program = ct.convert(
    torch.jit.trace(Module(), (torch.ones(1, 2), torch.ones(1, 2))),
    inputs=[ct.TensorType(shape=(1, 2)), ct.TensorType(shape=(1, 2))],
    convert_to="milinternal",
    compute_precision=ct.precision.FLOAT32,
    minimum_deployment_target=ct.target.iOS17,
)
(select,) = program.functions["main"].find_ops(op_type="select")
print(f"got filled with {float(str(select.a.val))}")
