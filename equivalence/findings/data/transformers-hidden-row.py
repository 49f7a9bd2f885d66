"""The same padded row: an average with eager attention, zero with sdpa

runtime: transformers 5.24.0, torch 2.13.0
kind: disagreement
case: one query, values 1 and 3, both keys hidden by finfo.min (eager) and False (sdpa)
got: eager 2.0, sdpa 0.0
expected: eager 0.0, sdpa 0.0
takes: seconds

Both masks are what the library's own mask functions make for the two implementations. Rows of
padding come out differently, so hidden states of padded batches cannot be compared.
"""

import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.models.llama.modeling_llama import eager_attention_forward

module = torch.nn.Module()
module.num_key_value_groups, module.is_causal, module.training = 1, False, False
query, key = torch.ones(1, 1, 1, 1), torch.zeros(1, 1, 2, 1)
value = torch.tensor([1.0, 3.0]).view(1, 1, 2, 1)
lowest = torch.full((1, 1, 1, 2), torch.finfo(torch.float32).min)
hidden = torch.zeros(1, 1, 1, 2, dtype=torch.bool)
eager, _ = eager_attention_forward(module, query, key, value, lowest, scaling=1.0)
sdpa, _ = sdpa_attention_forward(module, query, key, value, hidden, scaling=1.0)
print(f"got eager {eager.item()}, sdpa {sdpa.item()}")
