"""A row whose mask is finfo.min throughout is zero: the runtime takes it for -inf

runtime: onnxruntime 1.32.0, onnx 1.23.2
kind: wrong numbers
case: one query, one key, value 1, attn_mask = finfo(float32).min
got: runtime 0.0, reference 1.0
expected: runtime 1.0, reference 1.0

The operator adds the mask. With one key the weight is one, whatever is added; the reference
evaluator of the standard, torch and JAX agree. Law `agrees-with-float64` finds it.
"""

import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

names, shape = ("q", "k", "v", "mask", "y"), (1, 1, 1, 1)
values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in names]
node = helper.make_node("Attention", names[:4], names[4:])
graph = helper.make_graph([node], "g", values[:4], values[4:])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
given = {name: np.ones(shape, np.float32) for name in names[:3]}
given["mask"] = np.full(shape, np.finfo(np.float32).min)
runtime = onnxruntime.InferenceSession(model.SerializeToString()).run(None, given)[0].item()
print(f"got runtime {runtime}, reference {ReferenceEvaluator(model).run(None, given)[0].item()}")
