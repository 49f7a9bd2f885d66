"""A row that sees no key is an average by a boolean mask and NaN by a mask of -inf

runtime: mlx 0.32.4
kind: disagreement
case: one query, values 1 and 3, both keys hidden
got: bool 2.0, float nan
expected: bool 0.0, float 0.0

The two kinds of mask agree wherever a key is seen. torch gives zeros for both. Law `masked-rows`
reports it.
"""

import mlx.core as mx

mx.set_default_device(mx.cpu)
value = mx.array([1.0, 3.0]).reshape(1, 1, 2, 1)


def attend(mask):
    return mx.fast.scaled_dot_product_attention(
        mx.ones((1, 1, 1, 1)), mx.zeros((1, 1, 2, 1)), value, scale=1.0, mask=mask
    ).item()


hidden, infinite = mx.zeros((1, 1, 1, 2), mx.bool_), mx.full((1, 1, 1, 2), -float("inf"))
print(f"got bool {attend(hidden)}, float {attend(infinite)}")
