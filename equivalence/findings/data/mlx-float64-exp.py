"""exp of float64 is a float32 exponential

runtime: mlx 0.32.4
kind: lost precision
case: exp(2.0) in float64 on the CPU
got: float64 result with a relative error above 1e-9
expected: float64 result with a relative error below 1e-15
upstream: https://github.com/ml-explore/mlx/issues/4158

The result is of type float64 and good to 5e-8. Everything that is built on it inherits that:
softmax, sigmoid, attention.
"""

import math

import mlx.core as mx

mx.set_default_device(mx.cpu)
output = mx.exp(mx.array([2.0], dtype=mx.float64))
error = abs(output.item() / math.exp(2.0) - 1)
size = "above 1e-9" if error > 1e-9 else "below 1e-15" if error < 1e-15 else f"of {error:.1e}"
print(f"got {str(output.dtype).removeprefix('mlx.core.')} result with a relative error {size}")
