"""GroupQueryAttention turns a NaN that a row must see into zero

runtime: onnxruntime 1.32.0, onnx 1.23.2
kind: wrong numbers
case: a prompt of two tokens, head_dim 16, the first key NaN, float32
got: [0.0, nan]
expected: [nan, nan]

In float32 without softcap, a row whose visible scores are all NaN is zero wherever a key is hidden
from it: of a prompt, every row but the last. A diverged model looks finite. Law
`visible-nan-is-kept` finds it.
"""

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

given = {
    "query": np.ones((1, 2, 16), np.float32), "key": np.ones((1, 2, 16), np.float32),
    "value": np.ones((1, 2, 16), np.float32), "past_key": np.zeros((1, 1, 0, 16), np.float32),
    "past_value": np.zeros((1, 1, 0, 16), np.float32), "seqlens_k": np.array([1], np.int32),
    "total_sequence_length": np.array(2, np.int32),
}  # fmt: skip
given["key"][0, 0] = np.nan
node = helper.make_node(
    "GroupQueryAttention", list(given), ["y", "present_key", "present_value"],
    domain="com.microsoft", num_heads=1, kv_num_heads=1,
)  # fmt: skip
kinds = {"float32": TensorProto.FLOAT, "int32": TensorProto.INT32}
inputs = [
    helper.make_tensor_value_info(name, kinds[str(array.dtype)], array.shape)
    for name, array in given.items()
]
outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in node.output]
model = helper.make_model(
    helper.make_graph([node], "g", inputs, outputs), ir_version=10,
    opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)],
)  # fmt: skip
output = onnxruntime.InferenceSession(model.SerializeToString()).run(None, given)[0]
print(f"got {output[0, :, 0].tolist()}")
