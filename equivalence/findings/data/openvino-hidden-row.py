"""A row that sees no key is NaN, also by a boolean mask

runtime: openvino 2026.4.1
kind: disagreement
case: one query, values 1 and 3, a mask that is False everywhere; CPU, float32
got: nan
expected: 0.0
upstream: https://github.com/openvinotoolkit/openvino/issues/31630
takes: seconds

torch, from whose scaled_dot_product_attention the operation is converted, gives zeros. The report
is closed as fixed for masks that hide nothing; a hidden row is still NaN.
"""

import numpy as np
import openvino as ov
from openvino import opset13 as op

arrays = [
    np.ones((1, 1, 1, 1), np.float32), np.zeros((1, 1, 2, 1), np.float32),
    np.array([1, 3], np.float32).reshape(1, 1, 2, 1), np.zeros((1, 1, 1, 2), bool),
]  # fmt: skip
nodes = [op.parameter(array.shape, array.dtype.type) for array in arrays]
model = ov.Model([op.scaled_dot_product_attention(*nodes, causal=False)], nodes)
compiled = ov.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
print(f"got {compiled(arrays)[0].item()}")
