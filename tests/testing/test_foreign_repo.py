"""``equivalence.conformance`` in a repository that is not ours, with folders named like ours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

KERNELS = """
import torch

def attention(query, key, value, *, attn_mask=None, is_causal=False, scale=None):
    group, uneven = divmod(query.shape[1], key.shape[1])
    if uneven:
        raise ValueError("heads")
    key, value = (x.{repeat} for x in (key, value))
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = (query.float() @ key.float().transpose(-1, -2)) * scale
    if is_causal:
        offset = key.shape[2] - query.shape[2]
        keep = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(offset)
        scores = scores.masked_fill(~keep, float("-inf"))
    if attn_mask is not None:
        bias = attn_mask.float()
        if attn_mask.dtype == torch.bool:
            bias = torch.zeros(attn_mask.shape).masked_fill(~attn_mask, float("-inf"))
        scores = scores + bias
    return (torch.softmax(scores, -1) @ value.float()).to(query.dtype)
"""
# The same mistake without torch, which each of two processes would import.
NUMPY_KERNELS = """
import equivalence
import numpy as np

@equivalence.attention(arrays="numpy")
def attention(query, key, value):
    group, uneven = divmod(query.shape[1], key.shape[1])
    if uneven:
        raise ValueError("heads")
    key, value = (np.{repeat} for x in (key, value))
    scores = query.astype(np.float32) @ key.astype(np.float32).swapaxes(2, 3)
    scores = scores * query.shape[3] ** -0.5
    weights = np.exp(scores - scores.max(3, keepdims=True, initial=-np.inf))
    weights = weights / weights.sum(3, keepdims=True)
    return (weights @ value.astype(np.float32)).astype(query.dtype)
"""
TESTS = """
import equivalence
from acme.kernels import attention
from backends import NAME as backend
from strategies import NAME as strategy

test_attention = equivalence.conformance(
    attention, causal="lower_right", dtypes=["bfloat16"], examples=5
)

def test_own_folders():
    assert (backend, strategy) == ("acme's backend", "acme's strategy")
"""


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    for folder, word in (("backends", "backend"), ("strategies", "strategy")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text(f'NAME = "acme\'s {word}"\n')
    (tmp_path / "acme").mkdir()
    (tmp_path / "acme" / "__init__.py").touch()
    (tmp_path / "test_acme.py").write_text(TESTS)
    return tmp_path


def run(folder: Path, kernels: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "acme" / "kernels.py").write_text(kernels)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    paths = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240
    )


@pytest.mark.slow  # three interpreters that import torch
def test_right_kernel_passes_under_xdist(foreign: Path) -> None:
    result = run(foreign, KERNELS.replace("{repeat}", "repeat_interleave(group, 1)"), "-n", "2")
    assert result.returncode == 0, result.stdout
    assert "checks in" in result.stdout
    assert " 0 failed" not in result.stdout
    assert "passed" in result.stdout


def test_wrong_kernel_fails_without_the_plugin(foreign: Path) -> None:
    kernels = NUMPY_KERNELS.replace("{repeat}", "tile(x, (1, group, 1, 1))")
    result = run(foreign, kernels, "-p", "no:equivalence.plugin", "-k", "agrees or own")
    assert result.returncode == 1
    assert "test_attention[agrees-with-float64-bfloat16]" in result.stdout
    assert "head-mapping: query head 1 reads kv head 1, expected 0" in result.stdout
    assert 'AttentionCase(num_kv_heads=2, group_size=2, dtype="bfloat16")' in result.stdout
    assert "def test(" not in result.stdout
    assert "equivalence replay acme.kernels:attention 'AttentionCase(" in result.stdout
    assert "--declare causal=lower_right --law agrees-with-float64" in result.stdout
    assert "1 failed" in result.stdout.splitlines()[-1]
    assert "checks in" not in result.stdout
