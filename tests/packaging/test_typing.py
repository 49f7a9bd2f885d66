"""The public names are typed, documented, and listed on one page."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import equivalence

ROOT = Path(__file__).parents[2]
USER = '''
"""A user's module, as strict as mypy gets."""

from collections.abc import Callable

import torch
from torch import Tensor

import equivalence


@equivalence.attention(causal="lower_right", dtypes=("float32",), profile="eager")
def kernel(query: Tensor, key: Tensor, value: Tensor, *, scale: float | None = None) -> Tensor:
    if query.shape[1] % key.shape[1]:
        raise equivalence.Unsupported("uneven groups")
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, scale=scale)


test_kernel: Callable[..., None] = equivalence.conformance(kernel, dtypes=["float32"], examples=5)
case = equivalence.AttentionCase(num_kv_heads=2, group_size=2, mask=equivalence.Mask())
wider: equivalence.AttentionCase = case.but(kv_len=5)
heads: int = case.heads.num_heads
reveal_type(kernel)
'''
WRONG = """
import equivalence

equivalence.AttentionCase(num_heads=4)
equivalence.conformance(7)
equivalence.nothing
"""


def checked(tmp_path: Path, text: str) -> subprocess.CompletedProcess[str]:
    module = tmp_path / "user.py"
    module.write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", str(module)]  # shares the cache
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_package_says_that_it_is_typed():
    assert (Path(equivalence.__file__).parent / "py.typed").is_file()


@pytest.mark.slow
def test_a_strict_user_has_no_error(tmp_path):
    finished = checked(tmp_path, USER)
    mine = [line for line in finished.stdout.splitlines() if "user.py" in line]
    assert [line for line in mine if "error:" in line] == []
    # The decorator keeps the signature.
    assert re.search(r'note: Revealed type is "def \(query: torch.*Tensor, .*scale: ', mine[-1])


@pytest.mark.slow
def test_wrong_calls_are_errors(tmp_path):
    finished = checked(tmp_path, WRONG)
    lines = finished.stdout.splitlines()
    errors = [line for line in lines if "user.py" in line and "error:" in line]
    assert [re.search(r"user.py:(\d+): error", line)[1] for line in errors] == ["4", "5", "6"]


@pytest.mark.parametrize("name", equivalence.__all__)
def test_each_name_is_documented(name):
    about = inspect.getdoc(getattr(equivalence, name)) or ""
    assert len(about.split()) >= 5, f"{name} needs a docstring"
    assert not about.startswith(f"{name}("), f"{name} has the docstring that dataclasses make"


def test_the_page_lists_every_name_and_nothing_else():
    page = (ROOT / "docs" / "api.md").read_text("utf-8")
    listed = re.findall(r"^::: (\S+)$", page, re.MULTILINE)
    homes = [f"{equivalence._HOMES[name]}.{name}" for name in equivalence.__all__]
    assert sorted(listed) == sorted(homes)
