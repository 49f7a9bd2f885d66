"""Falcon's grouped cache holds every query head

runtime: transformers 5.24.0, torch 2.13.0
kind: cost
case: FalconConfig(new_decoder_architecture=True), 4 query heads, 2 key/value heads
got: cached heads 4
expected: cached heads 2
takes: seconds

With the new decoder architecture keys and values are broadcast to all query heads before they are
cached. Falcon-40B keeps 128 heads where the model has 8: 16 times the memory, and the saving that
grouped heads are for is gone. `equivalence kvspec` counts what the model needs.
"""

import torch
from transformers import FalconConfig, FalconForCausalLM

config = FalconConfig(
    num_hidden_layers=1, num_attention_heads=4, num_kv_heads=2, hidden_size=8, vocab_size=11,
    new_decoder_architecture=True,
)  # fmt: skip
with torch.no_grad():
    output = FalconForCausalLM(config).eval()(torch.zeros(1, 3, dtype=torch.long), use_cache=True)
cache = getattr(output, "past_key_values", None) or output.cache
print(f"got cached heads {cache.layers[0].keys.shape[1]}")
