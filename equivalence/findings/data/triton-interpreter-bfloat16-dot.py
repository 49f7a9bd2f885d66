"""tl.dot of bfloat16 tiles is wrong in the interpreter

runtime: triton 3.9.0
kind: wrong numbers
case: two 16 x 16 tiles of ones, TRITON_INTERPRET=1
got: float16 16.0, bfloat16 4228120576.0
expected: float16 16.0, bfloat16 16.0
upstream: https://github.com/triton-lang/triton/issues/11584
takes: seconds

The interpreter keeps bfloat16 as 16-bit integers and multiplies those: 16 * 0x3F80 * 0x3F80. Its
documentation says that it does not support bfloat16; it does not refuse it either, and the numbers
look like numbers. Test a bfloat16 kernel in float16 or float32 there.
"""

import os

os.environ["TRITON_INTERPRET"] = "1"
import torch
import triton
import triton.language as tl


@triton.jit
def product(a, b, c, n: tl.constexpr):
    row = tl.arange(0, n)
    place = row[:, None] * n + row[None, :]
    tl.store(c + place, tl.dot(tl.load(a + place), tl.load(b + place)))


def corner(dtype):
    ones, result = torch.ones(16, 16, dtype=dtype), torch.zeros(16, 16)
    product[(1,)](ones, ones, result, 16)
    return result[0, 0].item()


print(f"got float16 {corner(torch.float16)}, bfloat16 {corner(torch.bfloat16)}")
