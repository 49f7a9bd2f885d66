"""cache[:, :, position] = token ends the process

runtime: coreai-torch 0.4.3, coreai-core 1.0.0b3
kind: crash
case: a state [1, 1, 2, 2], float16, written at a position that is an input
got: SIGILL
expected: 1.0
takes: seconds

It converts; executing it aborts, past every `try`. A one-hot write of the same cache works. Run it
in a process of its own, as `equivalence check coreai.export` does.
"""

import asyncio
import tempfile
from pathlib import Path

import coreai_torch
import numpy as np
import torch
from coreai.runtime import NDArray


class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.zeros(1, 1, 2, 2, dtype=torch.float16))

    def forward(self, token, position):
        self.cache[:, :, position] = token
        return self.cache * 1.0


async def run(module, example):
    program = torch.export.export(module, example)
    program = program.run_decompositions(coreai_torch.get_decomp_table())
    converted = coreai_torch.TorchConverter().add_exported_program(program).to_coreai()
    with tempfile.TemporaryDirectory() as folder:
        asset = converted.save_asset(Path(folder) / "module.aimodel")
        async with asset.executable() as model:
            function = model.load_function("main")
            about = function.desc
            names = about.input_names
            given = {n: NDArray(x.numpy()) for n, x in zip(names, example, strict=True)}
            state = {
                name: NDArray(np.zeros(tuple(about.state_descriptor(name).shape), np.float16))
                for name in about.state_names
            }
            outputs = await function(given, state)
            return next(iter(outputs.values())).numpy()


example = (torch.ones(1, 1, 1, 2).half(), torch.tensor([1], dtype=torch.int32))
output = np.asarray(asyncio.run(run(Module(), example)))
print(f"got {float(output[0, 0, 1, 0])}")
