"""scaled_dot_product_attention turns NaN into zero

runtime: torch 2.13.0
kind: wrong numbers
case: query, key and value [1, 1, 1, 1], the only key NaN
got: flash 0.0, math nan
expected: flash nan, math nan
upstream: https://github.com/pytorch/pytorch/issues/141128

The fused CPU kernel gives zeros where every score of a row is NaN and the row is shorter than one
vector (16 keys in float32 with AVX-512). A model that has diverged looks finite. The composite
kernel keeps the NaN. Law `visible-nan-is-kept` finds it.
"""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

one, nan = torch.ones(1, 1, 1, 1), torch.full((1, 1, 1, 1), float("nan"))


def attend(kernel):
    with sdpa_kernel(kernel):
        return torch.nn.functional.scaled_dot_product_attention(one, nan, one).item()


print(f"got flash {attend(SDPBackend.FLASH_ATTENTION)}, math {attend(SDPBackend.MATH)}")
