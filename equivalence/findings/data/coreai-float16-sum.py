"""A float16 product sums in float16 on Linux: 4096 ones make 2048

runtime: coreai-torch 0.4.3, coreai-core 1.0.0b3
kind: lost precision
case: [1, 4096] @ [4096, 1] of ones, float16
got: 2048.0
expected: 4096.0
takes: seconds

2048 is where float16 stops counting by one. torch, Core ML's documented `matmul` and every other
runtime here sum in float32. A long context or a wide projection loses most of its small terms.
"""

import asyncio
import tempfile
from pathlib import Path

import coreai_torch
import numpy as np
import torch
from coreai.runtime import NDArray


class Module(torch.nn.Module):
    def forward(self, a, b):
        return a @ b


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


a, b = torch.ones(1, 4096).half(), torch.ones(4096, 1).half()
print(f"got {float(np.asarray(asyncio.run(run(Module(), (a, b)))).item())}")
