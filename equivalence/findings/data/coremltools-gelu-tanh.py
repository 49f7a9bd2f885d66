"""gelu(approximate="tanh") converts to the exact gelu on the torch.export route

runtime: coremltools 9.0, torch 2.13.0
kind: wrong numbers
case: gelu(x, approximate="tanh"), float32
got: trace TANH_APPROXIMATION, export EXACT
expected: trace TANH_APPROXIMATION, export TANH_APPROXIMATION
takes: seconds

The keyword is dropped on one of the two routes. The two functions differ by up to 4.7e-4, hundreds
of units in the last place, so a model that was trained with one is run with the other.
"""

import logging
import warnings

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
import coremltools as ct
import torch


class Module(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.gelu(x, approximate="tanh")


def mode(source):
    program = ct.convert(
        source,
        inputs=[ct.TensorType(name="x", shape=(4,))],
        convert_to="milinternal",
        minimum_deployment_target=ct.target.iOS17,
        compute_precision=ct.precision.FLOAT32,
    )
    return program.functions["main"].find_ops(op_type="gelu")[0].mode.val


module, example = Module(), (torch.ones(4),)
exported = torch.export.export(module, example).run_decompositions({})
print(f"got trace {mode(torch.jit.trace(module, example))}, export {mode(exported)}")
