"""dot_product_attention in float64 computes its softmax in float32

runtime: jax 0.10.2
kind: lost precision
case: 4 standard normal tokens of head_dim 8, jax_enable_x64
got: float64 result with an error above 1e-9
expected: float64 result with an error below 1e-13
takes: seconds

The result is of type float64 and good to 2e-7. Whoever takes float64 as the reference compares with
float32 numbers. Law `agrees-with-float64` finds it.
"""

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)
rng = np.random.default_rng(0)
query, key, value = (rng.normal(size=(1, 4, 1, 8)) for _ in range(3))
output = jax.nn.dot_product_attention(*map(jax.numpy.asarray, (query, key, value)))
scores = np.einsum("bqhd,bkhd->bhqk", query, key) / 8**0.5
weights = np.exp(scores - scores.max(-1, keepdims=True))
exact = np.einsum("bhqk,bkhd->bqhd", weights / weights.sum(-1, keepdims=True), value)
error = np.abs(np.asarray(output) - exact).max()
size = "above 1e-9" if error > 1e-9 else "below 1e-13" if error < 1e-13 else f"of {error:.1e}"
print(f"got {output.dtype} result with an error {size}")
