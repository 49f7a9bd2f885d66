"""dot_product_attention in float16 works eagerly and raises under jit on the CPU

runtime: jax 0.10.2
kind: crash
case: one token of head_dim 1, float16, CPU
got: eager 1.0, jit ValueError
expected: eager 1.0, jit 1.0
takes: seconds

Compiled, the product asks for float16 operands with a float32 result, which the CPU's dot_general
refuses: "The precision 'F16_F16_F32' is not supported by dot_general on CPU".
"""

import jax

one = jax.numpy.ones((1, 1, 1, 1), "float16")


def value(function):
    try:
        return function(one, one, one).item()
    except Exception as error:
        return type(error).__name__


attention = jax.nn.dot_product_attention
print(f"got eager {value(attention)}, jit {value(jax.jit(attention))}")
