"""The standard's own tests of grouped attention hold the interleaved head map

runtime: onnx 1.19.0
kind: wrong numbers
case: 4 query heads, 2 key/value heads, values 0 and 1, the reference implementation
got: query heads read [0, 1, 0, 1]
expected: query heads read [0, 0, 1, 1]
upstream: https://github.com/onnx/onnx/pull/7274
fixed: 1.20.0

In 1.19.0 the reference tiled all key/value heads, so query head h read h % num_kv_heads, and 13 of
13 node tests with grouped heads expected that. Every runtime that is held against them had to be
wrong to pass. From 1.20.0 on the map is h // group_size.
"""

import numpy as np
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

names = ("q", "k", "v", "y")
values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, None, 1, 1)) for name in names]
node = helper.make_node("Attention", names[:3], names[3:])
graph = helper.make_graph([node], "g", values[:3], values[3:])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
heads = np.array([0, 1], np.float32).reshape(1, 2, 1, 1)
given = {"q": np.zeros((1, 4, 1, 1), np.float32), "k": np.zeros_like(heads), "v": heads}
output = ReferenceEvaluator(model).run(None, given)[0]
print(f"got query heads read {output.astype(int).flatten().tolist()}")
