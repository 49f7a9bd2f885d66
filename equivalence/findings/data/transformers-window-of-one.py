"""A sliding window of one token never forgets, and the next step fails

runtime: transformers 5.24.0, torch 2.13.0
kind: crash
case: a cache layer with sliding_window=1, three steps of one token
got: keeps 1, 2, then 3 tokens
expected: keeps 0, 0, then 0 tokens
takes: seconds

The layer keeps the newest sliding_window - 1 tokens by `[:, :, -sliding_window + 1 :]`, and with a
window of one that is `[-0:]`, everything. Memory grows without bound, and the model's mask, which
counts on one key, no longer fits.
"""

import torch
from transformers.cache_utils import DynamicSlidingWindowLayer

layer, kept = DynamicSlidingWindowLayer(sliding_window=1), []
for _ in range(3):
    layer.update(torch.ones(1, 1, 1, 1), torch.ones(1, 1, 1, 1))
    kept.append(layer.keys.shape[2])
print(f"got keeps {kept[0]}, {kept[1]}, then {kept[2]} tokens")
