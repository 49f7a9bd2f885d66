"""DeepSeek-V2's rotation refuses heads whose content part is odd

runtime: transformers 5.24.0, torch 2.13.0
kind: crash
case: rotary part of 2 channels behind 3 of content
got: RuntimeError
expected: rotated
takes: seconds

The rotary channels are a slice of the projection that starts at an odd offset, and
`torch.view_as_complex` wants an even one. The third version of the model, which rotates without
complex numbers, takes the same sizes.
"""

import torch
from transformers import DeepseekV2Config, DeepseekV2ForCausalLM

config = DeepseekV2Config(
    num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1, hidden_size=4,
    intermediate_size=8, moe_intermediate_size=8, first_k_dense_replace=9, q_lora_rank=None,
    kv_lora_rank=2, qk_rope_head_dim=2, qk_nope_head_dim=3, v_head_dim=2, vocab_size=11,
)  # fmt: skip
try:
    with torch.no_grad():
        DeepseekV2ForCausalLM(config).eval()(torch.zeros(1, 2, dtype=torch.long))
    print("got rotated")
except Exception as error:
    print(f"got {type(error).__name__}")
