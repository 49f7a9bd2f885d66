"""A float64 model is computed in float32, and says float64

runtime: openvino 2026.4.1
kind: lost precision
case: 4 standard normal tokens of head_dim 8, float64, CPU, execution in its own type asked for
got: float64 result with an error above 1e-9
expected: float64 result with an error below 1e-13
takes: seconds

The plugin converts to float32 on the way in and back on the way out. A side effect: -inf in a
float64 mask is clamped to the lowest float32, so a row that sees no key is an average there, and
NaN in other formats.
"""

import numpy as np
import openvino as ov
from openvino import opset13 as op

rng = np.random.default_rng(0)
arrays = [rng.normal(size=(1, 1, 4, 8)) for _ in range(3)]
nodes = [op.parameter(array.shape, np.float64) for array in arrays]
model = ov.Model([op.scaled_dot_product_attention(*nodes, causal=False)], nodes)
compiled = ov.Core().compile_model(model, "CPU", {"EXECUTION_MODE_HINT": "ACCURACY"})
output = np.asarray(compiled(arrays)[0])
query, key, value = arrays
scores = query @ key.swapaxes(-1, -2) / 8**0.5
weights = np.exp(scores - scores.max(-1, keepdims=True))
error = np.abs(output - weights / weights.sum(-1, keepdims=True) @ value).max()
size = "above 1e-9" if error > 1e-9 else "below 1e-13" if error < 1e-13 else f"of {error:.1e}"
print(f"got {output.dtype} result with an error {size}")
