"""enable_gqa with a flexible length converts to interleaved heads, without a word

runtime: coremltools 9.0, torch 2.13.0
kind: wrong numbers
case: 4 query heads, 2 key/value heads, a RangeDim for the sequence, iOS18
got: query heads read [0, 1, 0, 1]
expected: query heads read [0, 0, 1, 1]
upstream: https://github.com/apple/coremltools/pull/2855
takes: seconds

The converter ignores `enable_gqa` and makes the head axes fit by tiling all of key and value, so
query head h reads key/value head h % num_kv_heads instead of h // group_size. With a static shape
the same module is refused. From one key/value head, or as many as query heads, nothing shows.
Law `converted-agrees` finds it. The script looks at what is repeated, and how often.
"""

import logging
import warnings

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
import coremltools as ct
import numpy as np
import torch


class Module(torch.nn.Module):
    def forward(self, q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)


example = (torch.ones(1, 4, 2, 8), torch.ones(1, 2, 2, 8), torch.ones(1, 2, 2, 8))
length = ct.RangeDim(1, 8, default=2)
program = ct.convert(
    torch.jit.trace(Module(), example),
    inputs=[
        ct.TensorType(name=name, shape=(1, heads, length, 8))
        for name, heads in (("q", 4), ("k", 2), ("v", 2))
    ],
    convert_to="milinternal",
    minimum_deployment_target=ct.target.iOS18,
)
(attention,) = program.functions["main"].find_ops(op_type="scaled_dot_product_attention")
value, heads = attention.value.op, np.array([0, 1])
while value is not None and value.op_type != "tile":
    value = value.x.op
tiled = value is not None  # or else nothing is repeated as a whole
heads = np.tile(heads, 2) if tiled else np.repeat(heads, 2)
print(f"got query heads read {heads.tolist()}")
