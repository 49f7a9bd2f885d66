"""A product of two booleans converts and cannot be executed

runtime: coreai-torch 0.4.3, coreai-core 1.0.0b3
kind: crash
case: (a > 0) * (b > 0), two masks of one element
got: RuntimeError
expected: 1.0
takes: seconds

Masks are often joined by a product. The conversion accepts it and the runtime does not: its kernel
`coreai.mul` has no boolean type. `torch.logaddexp` ends in the same way. `&` works.
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
        return ((a > 0) * (b > 0)).float()


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


try:
    print(f"got {np.asarray(asyncio.run(run(Module(), (torch.ones(1), torch.ones(1))))).item()}")
except Exception as error:
    print(f"got {type(error).__name__}")
