"""Values of another width than the keys are refused by an assertion

runtime: coreai-torch 0.4.3, coreai-core 1.0.0b3
kind: refusal
case: query and key of head_dim 4, values of 7
got: AssertionError
expected: converted
takes: seconds

torch's attention and latent attention have such values. The conversion ends in "Result type and
query type must be identical". Spelled out as two products and a softmax, the same converts.
"""

import asyncio
import tempfile
from pathlib import Path

import coreai_torch
import torch
from coreai.runtime import NDArray


class Module(torch.nn.Module):
    def forward(self, query, key, value):
        return torch.nn.functional.scaled_dot_product_attention(query, key, value)


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
    asyncio.run(
        run(Module(), (torch.ones(1, 1, 2, 4), torch.ones(1, 1, 3, 4), torch.ones(1, 1, 3, 7)))
    )
    print("got converted")
except Exception as error:
    print(f"got {type(error).__name__}")
