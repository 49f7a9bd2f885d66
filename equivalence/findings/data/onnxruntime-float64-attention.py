"""Attention in float64 is good to float32

runtime: onnxruntime 1.32.0, onnx 1.23.2
kind: lost precision
case: 4 standard normal tokens of head_dim 8, float64, opset 23
got: float64 result with an error above 1e-9
expected: float64 result with an error below 1e-13

The result is of type float64 and good to 8e-8. Law `agrees-with-float64` finds it.
"""

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

names, shape = ("q", "k", "v", "y"), (1, 1, 4, 8)
values = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, shape) for name in names]
node = helper.make_node("Attention", names[:3], names[3:])
graph = helper.make_graph([node], "g", values[:3], values[3:])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
session = onnxruntime.InferenceSession(model.SerializeToString())
rng = np.random.default_rng(0)
query, key, value = (rng.normal(size=shape) for _ in range(3))
output = session.run(None, {"q": query, "k": key, "v": value})[0]
scores = query @ key.swapaxes(-1, -2) / 8**0.5
weights = np.exp(scores - scores.max(-1, keepdims=True))
error = np.abs(output - weights / weights.sum(-1, keepdims=True) @ value).max()
size = "above 1e-9" if error > 1e-9 else "below 1e-13" if error < 1e-13 else f"of {error:.1e}"
print(f"got {output.dtype} result with an error {size}")
