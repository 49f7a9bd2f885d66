"""is_causal with a mask of one row: every query sees what the first one may

runtime: onnx 1.23.2
kind: wrong numbers
case: two queries, values 1 and 3, is_causal=1 and an open mask [1, 2]; reference evaluator
got: [1.0, 1.0]
expected: [1.0, 2.0]

The causal triangle is made at the size of the mask and not of the scores, so a mask that is
broadcast over queries carries only its first row. The reference is what other runtimes are held
against. Law `agrees-with-float64` finds it.
"""

import numpy as np
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

names = ("q", "k", "v", "mask", "y")
shapes = ((1, 1, 2, 1), (1, 1, 2, 1), (1, 1, 2, 1), (1, 2), (1, 1, 2, 1))
values = [
    helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    for name, shape in zip(names, shapes, strict=True)
]
node = helper.make_node("Attention", names[:4], names[4:], is_causal=1)
graph = helper.make_graph([node], "g", values[:4], values[4:])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
given = {name: np.zeros(shape, np.float32) for name, shape in zip(names, shapes, strict=True)}
given["v"] = np.array([1, 3], np.float32).reshape(1, 1, 2, 1)
del given["y"]
output = ReferenceEvaluator(model).run(None, given)[0]
print(f"got {output.flatten().tolist()}")
