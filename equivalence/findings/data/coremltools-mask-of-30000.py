"""A boolean mask becomes an addition of -30000: what it hides can still be seen

runtime: coremltools 9.0, torch 2.13.0
kind: wrong numbers
case: one query, a visible key of score 0 and a hidden one of score 40000; iOS17
got: 2.0
expected: 1.0
takes: seconds

Before iOS18, scaled_dot_product_attention is decomposed, and a boolean mask is added as
-3e4 * (1 - mask) in float32 and float16 alike. A hidden key whose score is more than 3e4 above the
visible ones gets all the weight, and a row that sees no key is an average (torch gives zeros).
Law `empty-rows-as-in-source` finds the second. The script evaluates the four operations in numpy.
"""

import logging
import warnings

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
import coremltools as ct
import numpy as np
import torch


class Module(torch.nn.Module):
    def forward(self, q, k, v, seen):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen > 0)


shapes = {"q": (1, 1, 1, 1), "k": (1, 1, 2, 1), "v": (1, 1, 2, 1), "seen": (1, 1, 1, 2)}
program = ct.convert(
    torch.jit.trace(Module(), tuple(torch.ones(shape) for shape in shapes.values())),
    inputs=[ct.TensorType(name=name, shape=shape) for name, shape in shapes.items()],
    convert_to="milinternal",
    minimum_deployment_target=ct.target.iOS17,
    compute_precision=ct.precision.FLOAT32,
)
known = {
    "q": np.full(shapes["q"], 200.0), "k": np.reshape([0.0, 200.0], shapes["k"]),
    "v": np.reshape([1.0, 2.0], shapes["v"]), "seen": np.reshape([1.0, 0.0], shapes["seen"]),
}  # fmt: skip


def number(variable):
    return known[variable.name] if variable.val is None else variable.val


def softmax(x):
    weights = np.exp(x - x.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


for op in program.functions["main"].operations:
    if op.op_type in ("add", "sub", "mul", "greater"):
        function = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "greater": np.greater}
        result = function[op.op_type](number(op.x), number(op.y))
    elif op.op_type == "matmul":
        other = number(op.y)
        result = number(op.x) @ (np.swapaxes(other, -1, -2) if op.transpose_y.val else other)
    elif op.op_type == "cast":
        result = number(op.x).astype(float)
    elif op.op_type == "softmax":
        result = softmax(number(op.x))
    elif op.op_type == "const":
        continue
    else:
        raise SystemExit(f"another decomposition: {op.op_type}")
    known[op.outputs[0].name] = result
print(f"got {result.item()}")
