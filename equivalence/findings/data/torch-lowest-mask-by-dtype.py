"""A row hidden by finfo.min is averaged in float32 and unmasked in float16

runtime: torch 2.13.0
kind: disagreement
case: one query, scores 0 and 2, values 0 and 1, both keys masked with finfo(dtype).min
got: float32 0.5, bfloat16 0.5, float16 0.881
expected: float32 0.5, bfloat16 0.5, float16 0.5

`finfo.min` is the usual "minus infinity" of additive masks. In float32 and bfloat16 adding a score
of 2 to it changes nothing, so the row is an average. The float16 mask is added in float32, where
-65504 + 2 is not -65504, so the row is attention as if there were no mask. A model gives other
numbers for a padded row in another dtype.
"""

import torch


def attend(dtype):
    query = torch.ones(1, 1, 1, 1, dtype=dtype)
    key = torch.tensor([0.0, 2.0], dtype=dtype).view(1, 1, 2, 1)
    value = torch.tensor([0.0, 1.0], dtype=dtype).view(1, 1, 2, 1)
    mask = torch.full((1, 1, 1, 2), torch.finfo(dtype).min, dtype=dtype)
    attention = torch.nn.functional.scaled_dot_product_attention
    return round(attention(query, key, value, mask).item(), 3)


print(
    f"got float32 {attend(torch.float32)}, bfloat16 {attend(torch.bfloat16)}, "
    f"float16 {attend(torch.float16)}"
)
