"""A folder with a kernel that breaks two laws, and the command in it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.commands import Run, here

KERNELS = '''
"""Interleaved heads, which breaks agreement and more."""

import equivalence
import torch

sdpa = torch.nn.functional.scaled_dot_product_attention


@equivalence.attention(dtypes=("float32",))
def interleaved(query, key, value):
    group = query.shape[1] // key.shape[1]
    return sdpa(query, key.repeat(1, group, 1, 1), value.repeat(1, group, 1, 1))


@equivalence.attention(dtypes=("float32",))
def right(query, key, value):
    return sdpa(query, key, value, enable_gqa=True)
'''
TESTS = """
import equivalence
from kernels import interleaved, right

LAWS = ["agrees-with-float64", "within-hull"]
test_interleaved = equivalence.conformance(interleaved, laws=LAWS, examples=8)
test_right = equivalence.conformance(right, laws=LAWS, examples=8)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory."""
    (tmp_path / "kernels.py").write_text(KERNELS)
    (tmp_path / "test_kernels.py").write_text(TESTS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(folder: Path, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run the command in this process."""
    return here(capfd)


@pytest.fixture
def tests(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Callable[[], str]]:
    """Run the tests of the folder; returns what pytest says of them."""
    monkeypatch.syspath_prepend(folder)
    before = set(sys.modules)

    def run() -> str:
        # What keeps something of a session in the process is this session's alone.
        off = ("cacheprovider", "faulthandler", "syrupy", "timeout", "xdist")
        without = [word for name in off for word in ("-p", f"no:{name}")]
        pytest.main(["-q", "-rA", *without, "--rootdir", str(folder), str(folder)])
        return capfd.readouterr().out

    yield run
    for name in {"kernels", "test_kernels"} & (set(sys.modules) - before):
        del sys.modules[name]
