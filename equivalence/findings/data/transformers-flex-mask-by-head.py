"""flex_attention reads the mask of head 0 for every head

runtime: transformers 5.24.0, torch 2.13.0
kind: wrong numbers
case: two heads, values 1 and 3, a float mask that hides key 1 from head 0 and key 0 from head 1
got: [1.0, 1.0]
expected: [1.0, 3.0]
takes: seconds

A mask of shape [batch, heads, queries, keys] is indexed by batch, query and key only. Biases that
differ by head (ALiBi, relative positions) are those of the first head. `eager` and `sdpa` are
right. Law `agrees-with-float64` finds it.
"""

import os

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # the eager form needs no compiler
import torch
from transformers.integrations.flex_attention import flex_attention_forward

module = torch.nn.Module()
module.num_key_value_groups, module.is_causal, module.training = 1, False, False
query, key = torch.ones(1, 2, 1, 16), torch.zeros(1, 2, 2, 16)
value = torch.tensor([1.0, 3.0]).view(1, 1, 2, 1).repeat(1, 2, 1, 16)
mask = torch.tensor([[0.0, -1e9], [-1e9, 0.0]]).view(1, 2, 1, 2)
output, _ = flex_attention_forward(module, query, key, value, mask, scaling=1.0)
print(f"got {output[0, 0, :, 0].tolist()}")
