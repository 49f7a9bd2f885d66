"""The reference evaluator rounds a given scale to float32 for float64 inputs

runtime: onnx 1.23.2
kind: lost precision
case: one query, scores 0 and 0.1 (scale=0.1), float64
got: float64 result with an error above 1e-12
expected: float64 result with an error below 1e-15

The attribute is a float32, as ONNX has no other; its square root, which scales query and key, is
rounded to float32 once more. Whoever takes the evaluator in float64 for the exact answer compares
with that. Law `agrees-with-float64` finds it.
"""

import math

import numpy as np
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

names = ("q", "k", "v", "y")
shapes = ((1, 1, 1, 1), (1, 1, 2, 1), (1, 1, 2, 1), (1, 1, 1, 1))
values = [
    helper.make_tensor_value_info(name, TensorProto.DOUBLE, shape)
    for name, shape in zip(names, shapes, strict=True)
]
node = helper.make_node("Attention", names[:3], names[3:], scale=0.5)
graph = helper.make_graph([node], "g", values[:3], values[3:])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
key = np.array([0.0, 1.0]).reshape(1, 1, 2, 1)
output = ReferenceEvaluator(model).run(None, {"q": np.ones((1, 1, 1, 1)), "k": key, "v": key})[0]
error = abs(output.item() - 1 / (1 + math.exp(-0.5)))  # 0.5 is a float32
size = "above 1e-12" if error > 1e-12 else "below 1e-15" if error < 1e-15 else f"of {error:.1e}"
print(f"got {output.dtype} result with an error {size}")
