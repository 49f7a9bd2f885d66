"""An assignment by an index tensor behind a slice is dropped on the trace route

runtime: coremltools 9.0, torch 2.13.0
kind: wrong numbers
case: new = zeros(2, 5, 4); new[:, [4, 0, 2]] = x; return new
got: trace: does not depend on x
expected: trace: depends on x
upstream: https://github.com/apple/coremltools/issues/2188
takes: seconds

No state is in play here: an ordinary tensor is filled. The converted program returns the zeros, and
the input is not even read. `coremltools-vanished-write` is the same loss for a cache.
"""

import logging
import warnings

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
import coremltools as ct
import torch


class Module(torch.nn.Module):
    def forward(self, x):
        new = torch.zeros(2, 5, 4)
        new[:, torch.tensor([4, 0, 2])] = x
        return new


program = ct.convert(
    torch.jit.trace(Module(), torch.ones(2, 3, 4)),
    inputs=[ct.TensorType(name="x", shape=(2, 3, 4))],
    convert_to="milinternal",
    minimum_deployment_target=ct.target.iOS18,
)
types = {op.op_type for op in program.functions["main"].operations}
written = any(name.startswith(("scatter", "slice_update", "concat")) for name in types)
print(f"got trace: {'depends on x' if written else 'does not depend on x'}")
