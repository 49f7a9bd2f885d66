"""cache[:, :, position] = token writes nothing on the trace route

runtime: coremltools 9.0, torch 2.13.0
kind: wrong numbers
case: a state [1, 1, 4, 2], float16, written at a position that is an input
got: indexed write: 0 state updates; one-hot write: 1 state updates
expected: indexed write: 1 state updates; one-hot write: 1 state updates
upstream: https://github.com/apple/coremltools/issues/2188
takes: seconds

The traced in-place write by an index tensor is dropped: the converted program has no operation that
updates the state, the cache stays zero, and nothing is said. A one-hot write, which is the control
here, is kept; so is the indexed write by way of `torch.export`. Law `state-writes-land` finds it.
"""

import logging
import warnings

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
import coremltools as ct
import numpy as np
import torch


class Indexed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.zeros(1, 1, 4, 2))

    def forward(self, token, position):
        self.cache[:, :, position] = token
        return self.cache * 1.0


class OneHot(Indexed):
    def forward(self, token, position):
        here = (torch.arange(4) == position).view(1, 1, 4, 1).float()
        self.cache[:] = self.cache * (1 - here) + token * here
        return self.cache * 1.0


def updates(module):
    token = torch.ones(1, 1, 1, 2)
    program = ct.convert(
        torch.jit.trace(module, (token, torch.tensor([1])), check_trace=False),
        inputs=[
            ct.TensorType(name="token", shape=(1, 1, 1, 2), dtype=np.float16),
            ct.TensorType(name="position", shape=(1,), dtype=np.int32),
        ],
        states=[
            ct.StateType(
                wrapped_type=ct.TensorType(shape=(1, 1, 4, 2), dtype=np.float16), name="cache"
            )
        ],
        minimum_deployment_target=ct.target.iOS18,
        convert_to="milinternal",
    )
    return len(program.functions["main"].find_ops(op_type="coreml_update_state"))


indexed, one_hot = updates(Indexed()), updates(OneHot())
print(f"got indexed write: {indexed} state updates; one-hot write: {one_hot} state updates")
