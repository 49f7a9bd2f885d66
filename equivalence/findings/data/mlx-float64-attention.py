"""fast.scaled_dot_product_attention in float64 is good to float32

runtime: mlx 0.32.4
kind: lost precision
case: 4 standard normal tokens of head_dim 8, float64 on the CPU
got: float64 result with an error above 1e-9
expected: float64 result with an error below 1e-13
upstream: https://github.com/ml-explore/mlx/issues/3047

The error is 3e-8 to 6e-8: its exponential is that of `mlx-float64-exp`. Law `agrees-with-float64`.
"""

import mlx.core as mx
import numpy as np

mx.set_default_device(mx.cpu)
rng = np.random.default_rng(0)
query, key, value = (rng.normal(size=(1, 1, 4, 8)) for _ in range(3))
output = mx.fast.scaled_dot_product_attention(
    *(mx.array(x, dtype=mx.float64) for x in (query, key, value)), scale=8**-0.5
)
scores = query @ key.swapaxes(-1, -2) / 8**0.5
weights = np.exp(scores - scores.max(-1, keepdims=True))
exact = weights / weights.sum(-1, keepdims=True) @ value
error = np.abs(np.array(output) - exact).max()
size = "above 1e-9" if error > 1e-9 else "below 1e-13" if error < 1e-13 else f"of {error:.1e}"
print(f"got {str(output.dtype).removeprefix('mlx.core.')} result with an error {size}")
