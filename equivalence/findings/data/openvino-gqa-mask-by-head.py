"""enable_gqa with a mask that differs by head converts, and fails at every inference

runtime: openvino 2026.4.1, torch 2.13.0
kind: crash
case: 2 query heads, 1 key/value head, 2 keys, a mask [1, 2, 1, 2]; CPU
got: RuntimeError
expected: [2.0, 2.0]
takes: seconds

The converter splits the heads of the query into groups and leaves the mask as it is, so the two do
not broadcast. Masks that are alike for all heads work. Law `agrees-with-float64` finds it.
"""

import numpy as np
import openvino as ov
import torch


class Module(torch.nn.Module):
    def forward(self, query, key, value, mask):
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, enable_gqa=True
        )


value = torch.tensor([1.0, 3.0]).view(1, 1, 2, 1)
example = (torch.ones(1, 2, 1, 1), torch.zeros(1, 1, 2, 1), value, torch.zeros(1, 2, 1, 2))
model = ov.convert_model(Module(), example_input=example)
compiled = ov.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
try:
    output = np.asarray(compiled([x.numpy() for x in example])[0])
    print(f"got {output.flatten().tolist()}")
except Exception as error:
    print(f"got {type(error).__name__}")
