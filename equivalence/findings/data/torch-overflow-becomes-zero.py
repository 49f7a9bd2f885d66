"""Scores that overflow to NaN come out as zero

runtime: torch 2.13.0
kind: wrong numbers
case: query 1e30, two keys of head_dim 2 whose products are +inf and -inf; float32
got: flash [0.0, 0.0], math [nan, nan]
expected: flash [nan, nan], math [nan, nan]

No operand is NaN: the score is, as inf - inf. The fused CPU kernel then answers zero for the row.
The cause is that of `torch-nan-key-becomes-zero`; here an overflow that should be seen is hidden.
"""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

query = torch.full((1, 1, 1, 2), 1e30)
key = torch.tensor([[1e30, -1e30], [1e30, -1e30]]).view(1, 1, 2, 2)


def attend(kernel):
    with sdpa_kernel(kernel):
        value = torch.ones(1, 1, 2, 2)
        output = torch.nn.functional.scaled_dot_product_attention(query, key, value)
        return output.flatten().tolist()


print(f"got flash {attend(SDPBackend.FLASH_ATTENTION)}, math {attend(SDPBackend.MATH)}")
