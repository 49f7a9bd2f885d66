"""With more queries than keys, causal rows that see no key are averages

runtime: mlx 0.32.4
kind: disagreement
case: 3 queries, 2 keys, equal scores, values 1 and 3, mask="causal"
got: [2.0, 1.0, 2.0]
expected: [0.0, 1.0, 2.0]

Causality counts from the lower right, so the first query sees no key. It gets the mean of both
values, which lie in its future. torch's `causal_lower_right` gives zero there. Law `causality`.
"""

import mlx.core as mx

mx.set_default_device(mx.cpu)
value = mx.array([1.0, 3.0]).reshape(1, 1, 2, 1)
output = mx.fast.scaled_dot_product_attention(
    mx.ones((1, 1, 3, 1)), mx.zeros((1, 1, 2, 1)), value, scale=1.0, mask="causal"
)
print(f"got {output.flatten().tolist()}")
