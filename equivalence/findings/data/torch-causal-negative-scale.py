"""is_causal with a scale of zero or below gives NaN

runtime: torch 2.13.0
kind: wrong numbers
case: two equal tokens, values 1 and 2, is_causal=True, scale=-1
got: flash [nan, 1.5], math [1.0, 1.5]
expected: flash [1.0, 1.5], math [1.0, 1.5]

The fused CPU kernel writes -inf over the hidden scores and scales afterwards: -inf times a negative
scale is +inf, and times zero NaN. With an explicit mask, or through the composite kernel, the same
call is right.
"""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

same, value = torch.ones(1, 1, 2, 1), torch.tensor([1.0, 2.0]).view(1, 1, 2, 1)


def attend(kernel):
    with sdpa_kernel(kernel):
        return torch.nn.functional.scaled_dot_product_attention(
            same, same, value, is_causal=True, scale=-1.0
        )


flash, math = (attend(kernel) for kernel in (SDPBackend.FLASH_ATTENTION, SDPBackend.MATH))
print(f"got flash {flash.flatten().tolist()}, math {math.flatten().tolist()}")
