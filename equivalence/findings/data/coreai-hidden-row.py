"""A row that sees no key is an average, not zero

runtime: coreai-torch 0.4.3, coreai-core 1.0.0b3
kind: disagreement
case: one query, values 1 and 3, a boolean mask that is False everywhere
got: 2.0
expected: 0.0
takes: seconds

torch gives zeros for such a row. The converted attention gives the mean of the keys that it must
not see, so a padded row looks like a result. Law `empty-rows-as-in-source` finds it.
"""

import asyncio
import tempfile
from pathlib import Path

import coreai_torch
import numpy as np
import torch
from coreai.runtime import NDArray


class Module(torch.nn.Module):
    def forward(self, query, key, value, seen):
        attention = torch.nn.functional.scaled_dot_product_attention
        return attention(query, key, value, attn_mask=seen > 0)


async def run(module, example):
    program = torch.export.export(module, example)
    program = program.run_decompositions(coreai_torch.get_decomp_table())
    converted = coreai_torch.TorchConverter().add_exported_program(program).to_coreai()
    with tempfile.TemporaryDirectory() as folder:
        asset = converted.save_asset(Path(folder) / "module.aimodel")
        async with asset.executable() as model:
            function = model.load_function("main")
            names = function.desc.input_names
            given = {n: NDArray(x.numpy()) for n, x in zip(names, example, strict=True)}
            outputs = await function(given, {})
            return next(iter(outputs.values())).numpy()


example = (
    torch.ones(1, 1, 1, 1), torch.zeros(1, 1, 2, 1), torch.tensor([1.0, 3.0]).view(1, 1, 2, 1),
    torch.zeros(1, 1, 1, 2),
)  # fmt: skip
print(f"got {float(np.asarray(asyncio.run(run(Module(), example))).item())}")
