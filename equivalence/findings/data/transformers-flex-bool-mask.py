"""flex_attention adds a boolean mask to the scores as 0 and 1

runtime: transformers 5.24.0, torch 2.13.0
kind: wrong numbers
case: one query, equal scores, values 1 and 3, the second key hidden by False
got: 1.538
expected: 1.0
takes: seconds

A mask of rank 4 is taken for a bias: True adds one and False adds nothing, so a hidden key keeps
27% of the weight. `sdpa` in the same library reads the same mask as "may attend". Laws
`agrees-with-float64` and `hidden-keys-do-not-matter` find it.
"""

import os

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # the eager form needs no compiler
import torch
from transformers.integrations.flex_attention import flex_attention_forward

module = torch.nn.Module()
module.num_key_value_groups, module.is_causal, module.training = 1, False, False
query, key = torch.ones(1, 1, 1, 16), torch.zeros(1, 1, 2, 16)
value = torch.tensor([1.0, 3.0]).view(1, 1, 2, 1).repeat(1, 1, 1, 16)
mask = torch.tensor([True, False]).view(1, 1, 1, 2)
output, _ = flex_attention_forward(module, query, key, value, mask, scaling=1.0)
print(f"got {round(output.flatten()[0].item(), 3)}")
