"""log_softmax is converted to log(softmax), which cannot go below -103

runtime: coremltools 9.0, torch 2.13.0
kind: wrong numbers
case: log_softmax of [0, 200] in float32
got: softmax then log
expected: log-sum-exp form
upstream: https://github.com/apple/coremltools/issues/2728
takes: seconds

torch gives [-200, 0]. The converted program takes the softmax, where the first weight underflows to
zero, and then its logarithm with MIL's epsilon of 1e-45: -103.28 in float32, and the same for every
score that is lower. Log-probabilities, losses and beam scores of unlikely tokens are wrong.
The script looks at the operations that the logarithm reads.
"""

import logging
import warnings

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
import coremltools as ct
import torch


class Module(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.log_softmax(x, -1)


program = ct.convert(
    torch.jit.trace(Module(), torch.tensor([[0.0, 200.0]])),
    inputs=[ct.TensorType(shape=(1, 2))],
    convert_to="milinternal",
    compute_precision=ct.precision.FLOAT32,
    minimum_deployment_target=ct.target.iOS17,
)
logarithms = program.functions["main"].find_ops(op_type="log")
naive = any(op.x.op is not None and op.x.op.op_type == "softmax" for op in logarithms)
print("got softmax then log" if naive else "got log-sum-exp form")
