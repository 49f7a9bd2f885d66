"""The gradients of heads that share keys and values are summed in 16 bits, and the sum stands still

runtime: torch 2.13.0
kind: lost precision
case: query [1, 512, 1, 1] and key of zeros, value [1, 1, 1, 1], upstream gradient of ones, bfloat16
got: flash 256.0, math 512.0
expected: flash 512.0, math 512.0

The backward pass of the fused CPU kernel adds what the query heads of a group contribute to dK and
dV one by one in the tensors' own 16 bits. Each head adds 1 here; from 256 on bfloat16 has no room
for a 1, and the sum stays. The composite kernel sums in float32. Laws `gradients-agree` and
`group-gradients-sum` find it.
"""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel


def value_gradient(kernel):
    query = torch.zeros(1, 512, 1, 1, dtype=torch.bfloat16)
    key = torch.zeros(1, 1, 1, 1, dtype=torch.bfloat16)
    query, key, value = (x.requires_grad_() for x in (query, key, torch.ones_like(key)))
    with sdpa_kernel(kernel):
        output = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, enable_gqa=True
        )
        return torch.autograd.grad(output.sum(), value)[0].item()


flash, math = (value_gradient(one) for one in (SDPBackend.FLASH_ATTENTION, SDPBackend.MATH))
print(f"got flash {flash}, math {math}")
