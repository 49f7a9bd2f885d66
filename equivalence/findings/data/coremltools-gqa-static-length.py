"""enable_gqa of a static shape does not convert

runtime: coremltools 9.0, torch 2.13.0
kind: refusal
case: 4 query heads, 2 key/value heads, static shapes, iOS18
got: ValueError
expected: converted
upstream: https://github.com/apple/coremltools/pull/2855
takes: seconds

The argument `enable_gqa` is not looked at, so the operation is built with 4 query heads and 2 key
heads and its own type check refuses that: the lucky half of `coremltools-gqa-flexible-length`.
"""

import logging
import warnings

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
import coremltools as ct
import torch


class Module(torch.nn.Module):
    def forward(self, q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)


example = (torch.ones(1, 4, 2, 8), torch.ones(1, 2, 2, 8), torch.ones(1, 2, 2, 8))
try:
    ct.convert(
        torch.jit.trace(Module(), example),
        inputs=[ct.TensorType(shape=tuple(one.shape)) for one in example],
        convert_to="milinternal",
        minimum_deployment_target=ct.target.iOS18,
    )
    print("got converted")
except Exception as error:
    print(f"got {type(error).__name__}")
