"""attn_mask together with is_causal: one CPU kernel takes both, the other refuses

runtime: torch 2.13.0
kind: disagreement
case: two tokens, an open mask and is_causal=True
got: flash [1.0, 1.5], math RuntimeError
expected: flash RuntimeError, math RuntimeError

The documentation says that an error is thrown if both are set. The fused CPU kernel takes their
conjunction, so whether a call works depends on which kernel is chosen: another value_head_dim, and
it raises.
"""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

same, value = torch.ones(1, 1, 2, 1), torch.tensor([1.0, 2.0]).view(1, 1, 2, 1)


def attend(kernel):
    with sdpa_kernel(kernel):
        try:
            mask = torch.ones(1, 1, 2, 2, dtype=torch.bool)
            output = torch.nn.functional.scaled_dot_product_attention(
                same, same, value, mask, is_causal=True
            )
        except Exception as error:
            return type(error).__name__
        return output.flatten().tolist()


print(f"got flash {attend(SDPBackend.FLASH_ATTENTION)}, math {attend(SDPBackend.MATH)}")
