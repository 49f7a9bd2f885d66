"""The command line, run in this process or in one of its own, in a folder with some kernels."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import Finished, Run, here

COMMAND = (sys.executable, "-c", "from equivalence.cli import main; main()")
KERNELS = '''
"""Kernels, right and wrong."""

import os
import sys

import torch

sdpa = torch.nn.functional.scaled_dot_product_attention


def right(query, key, value):
    return sdpa(query, key, value, enable_gqa=True)


def interleaved(query, key, value):
    group = query.shape[1] // key.shape[1]
    return sdpa(query, key.repeat(1, group, 1, 1), value.repeat(1, group, 1, 1))


def upper_left(query, key, value, is_causal=False):
    return sdpa(query, key, value, is_causal=is_causal, enable_gqa=True)


def chatty(query, key, value):
    print("printed by the kernel")
    os.write(1, b"written by the kernel\\n")
    return right(query, key, value)


def aborts(query, key, value):
    if key.shape[2] >= 32:
        os.abort()
    return right(query, key, value)


def refuses(query, key, value):
    raise NotImplementedError("head_dim must be 12345")


def equal_heads(query, key, value):
    if query.shape[1] != key.shape[1]:
        raise NotImplementedError("num_heads must equal num_kv_heads")
    return sdpa(query, key, value)


def lengths_needed(query, key, value, *, cache_seqlens):
    return right(query, key, value)


def packed(query, key, value, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k):
    return query


def metadata_needed(query, key, value, attn_metadata):
    return right(query, key, value)


class Layer:
    def __call__(self, query, key, value):
        return right(query, key, value)


def two_at_once(query, key, positions):
    return query, key


def turned(x, positions, *, theta):
    return x


not_callable = 3
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with kernels.py in it; no terminal, no colours asked for."""
    (tmp_path / "kernels.py").write_text(KERNELS)
    monkeypatch.chdir(tmp_path)
    for name in ("FORCE_COLOR", "NO_COLOR", "TERM", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def run(folder: Path, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run the command in this process."""
    return here(capfd)


@pytest.fixture
def spawn(folder: Path) -> Run:
    """Run the command in a process of its own, with pipes."""

    def spawn(*arguments: str, **environment: str) -> Finished:
        finished = subprocess.run(
            [*COMMAND, *arguments],
            cwd=folder,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        return Finished(finished.returncode, finished.stdout, finished.stderr)

    return spawn
