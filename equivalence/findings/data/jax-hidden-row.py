"""A row that sees no key is an average by a boolean mask and NaN by a bias of -inf

runtime: jax 0.10.2
kind: disagreement
case: one query, values 1 and 3, both keys hidden
got: mask 2.0, bias nan
expected: mask 0.0, bias 0.0
takes: seconds

The two ways to hide a key are documented as such and agree on every row that sees something. A
boolean mask becomes a large negative finite number, so an empty row is the mean of what it must
not see. torch gives zeros for both. Law `masked-rows` reports it.
"""

import jax
import numpy as np

jnp = jax.numpy
query, key = jnp.ones((1, 1, 1, 1), "float32"), jnp.zeros((1, 2, 1, 1), "float32")
value = jnp.array([1.0, 3.0], "float32").reshape(1, 2, 1, 1)
attention = jax.nn.dot_product_attention
masked = attention(query, key, value, mask=jnp.zeros((1, 1, 1, 2), bool)).item()
biased = attention(query, key, value, bias=jnp.full((1, 1, 1, 2), -np.inf, "float32")).item()
print(f"got mask {masked}, bias {biased}")
