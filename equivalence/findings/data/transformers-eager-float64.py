"""eager attention in float64 takes its softmax in float32

runtime: transformers 5.24.0, torch 2.13.0
kind: lost precision
case: one query, two keys with scores 0 and 1, float64
got: float64 result with an error above 1e-9
expected: float64 result with an error below 1e-13
takes: seconds

The softmax is asked for in float32 whatever the dtype, so a model in float64 is a model in float32.
A second effect: the lowest float64, which the library's own masks hold, is -inf there, and a row
that sees no key is NaN in float64 and an average in float32.
"""

import math

import torch
from transformers.models.llama.modeling_llama import eager_attention_forward

module = torch.nn.Module()
module.num_key_value_groups, module.is_causal, module.training = 1, False, False
query = torch.ones(1, 1, 1, 1, dtype=torch.float64)
key = torch.tensor([0.0, 1.0], dtype=torch.float64).view(1, 1, 2, 1)
output, _ = eager_attention_forward(module, query, key, key, None, scaling=1.0)
error = abs(output.item() - 1 / (1 + math.exp(-1)))
size = "above 1e-9" if error > 1e-9 else "below 1e-13" if error < 1e-13 else f"of {error:.1e}"
print(f"got {str(output.dtype).removeprefix('torch.')} result with an error {size}")
