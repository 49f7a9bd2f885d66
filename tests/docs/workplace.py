"""A folder in which the commands of a page can run: the files that they name, made when named."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.docs.snippets import ROOT, arguments

CONFIG = {
    "model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "hidden_size": 32, "max_position_embeddings": 65536,
}  # fmt: skip
KERNEL = '''"""A kernel that is right."""

import torch


def attention(query, key, value, *, is_causal=False, sink_logits=None, **options):
    scores = query.unflatten(1, (key.shape[1], -1)) @ key.unsqueeze(2).transpose(-1, -2)
    scores = scores * query.shape[-1] ** -0.5
    if is_causal or options.get("causal"):
        rows, columns = scores.shape[-2:]
        seen = torch.ones(rows, columns, dtype=torch.bool).tril(columns - rows)
        scores = scores.masked_fill(~seen, float("-inf"))
    if sink_logits is not None:
        sinks = sink_logits.view(1, key.shape[1], -1, 1, 1).expand(*scores.shape[:-1], 1)
        scores = torch.cat((scores, sinks.to(scores.dtype)), -1)
    weights = scores.float().softmax(-1)[..., : key.shape[2]].to(query.dtype)
    return (weights @ value.unsqueeze(2)).flatten(1, 2)
'''
CONVERTER = '''"""Conversion that changes nothing: the module itself."""


def convert(module, example_inputs):
    return module
'''


def package(path: Path) -> None:
    """A small model package, as coremltools saves it."""
    import torch

    from equivalence.coreml.conversion import program_of

    class Module(torch.nn.Module):
        def forward(self, query, key, value):
            scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-1, -2)
            return scores.softmax(-1) @ value

    example = tuple(torch.ones(1, 2, 4, 8).half() for _ in range(3))
    program_of(Module(), example, convert_to="mlprogram").save(str(path))


def onnx_model(path: Path) -> None:
    """The same attention in ONNX."""
    from onnx import TensorProto, helper, save

    names = ("query", "key", "value", "output")
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (1, 2, 4, 8)) for n in names]
    node = helper.make_node("Attention", names[:3], names[3:])
    graph = helper.make_graph([node], "attention", values[:3], values[3:])
    opset = helper.make_opsetid("", 23)
    save(helper.make_model(graph, opset_imports=[opset], ir_version=10), str(path))


def text(content: str) -> Callable[[Path], None]:
    return lambda path: (path.write_text(content), None)[1]


MAKERS: dict[str, Callable[[Path], None]] = {
    "path/to/config.json": text(json.dumps(CONFIG)),
    "config.json": text(json.dumps(CONFIG)),
    "mine.py": text(KERNEL),
    "path/to/file.py": text(CONVERTER),
    "MODEL.mlpackage": package,
    "MODEL.onnx": onnx_model,
    "new.mlpackage": package,
    "old.mlpackage": package,
}


def furnish(folder: Path, command: str) -> None:
    """Make what ``command`` names and is not there yet."""
    for name, make in MAKERS.items():
        path = folder / name
        if name in command and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            make(path)
    if "shard-" in command and (folder / "run.json").exists():
        shutil.copy(folder / "run.json", folder / "shard-1.json")
    if "docs/" in command and not (folder / "docs").exists():
        shutil.copytree(ROOT / "docs", folder / "docs")  # it may be written to
    for name in ("examples", "benchmarks", "tests", "equivalence", "pyproject.toml"):
        if name in command and not (folder / name).exists():
            (folder / name).symlink_to(ROOT / name)


def run(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    """Run one command line in ``folder``, with this checkout's code."""
    settings, words = arguments(command)
    programs = {
        "equivalence": [sys.executable, "-m", "equivalence"],
        "pytest": [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"],
        "python": [sys.executable],
    }
    words = [
        *programs.get(words[0], words[:1]),
        *(name for word in words[1:] for name in _matching(folder, word)),
    ]
    return subprocess.run(
        words,
        cwd=folder,
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            **settings,
            "PYTHONPATH": os.pathsep.join((str(folder), str(ROOT))),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def _matching(folder: Path, word: str) -> list[str]:
    """What a shell makes of a word with a star."""
    found = sorted(path.name for path in folder.glob(word)) if word.endswith("*.json") else []
    return found or [word]
