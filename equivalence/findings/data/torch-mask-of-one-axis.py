"""A mask of one axis is refused by the fused kernel that is chosen for it

runtime: torch 2.13.0
kind: crash
case: two tokens, attn_mask=[True, False]
got: default IndexError, math [1.0, 1.0]
expected: default [1.0, 1.0], math [1.0, 1.0]

The mask must be "broadcastable to the shape of attention weights", and one of shape [kv_len] is.
The dispatcher chooses the fused CPU kernel, which reads the axis before the last. The composite
kernel broadcasts it.
"""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

same, value = torch.ones(1, 1, 2, 1), torch.tensor([1.0, 2.0]).view(1, 1, 2, 1)


def attend(*kernels):
    with sdpa_kernel(list(kernels)):
        try:
            mask = torch.tensor([True, False])
            output = torch.nn.functional.scaled_dot_product_attention(same, same, value, mask)
        except Exception as error:
            return type(error).__name__
        return output.flatten().tolist()


default = attend(SDPBackend.FLASH_ATTENTION, SDPBackend.MATH)
print(f"got default {default}, math {attend(SDPBackend.MATH)}")
