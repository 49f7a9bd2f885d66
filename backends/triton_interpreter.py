"""Triton, in its interpreter where there is no GPU.

Triton decides when it is loaded whether its own functions are interpreted. Inductor and others load
it to compile, so where it is interpreted it is a copy of its own here, and theirs is left alone.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final

import torch

INTERPRETED: Final = not torch.cuda.is_available()
SWITCH: Final = "TRITON_INTERPRET"
_copy: Final[dict[str, ModuleType]] = {}


@contextmanager
def interpreted() -> Iterator[None]:
    """Inside, ``triton`` and what is imported of it are the interpreted copy. Not for threads."""
    if not INTERPRETED:
        yield
        return
    theirs, before = _taken_out(), os.environ.get(SWITCH)
    sys.modules.update(_copy)
    os.environ[SWITCH] = "1"
    try:
        yield
    finally:
        _copy.update(_taken_out())
        sys.modules.update(theirs)
        os.environ.pop(SWITCH)
        if before is not None:
            os.environ[SWITCH] = before


def _taken_out() -> dict[str, ModuleType]:
    """The modules of Triton, no longer imported; its compiled library is one for all copies."""
    names = [name for name in sys.modules if name.partition(".")[0] == "triton"]
    return {name: sys.modules.pop(name) for name in names if not name.startswith("triton._C")}


with interpreted():
    triton: Any = importlib.import_module("triton")
    tl: Any = importlib.import_module("triton.language")


def jit(function: Callable[..., Any]) -> Any:
    """``triton.jit`` of the interpreted copy, or of Triton itself."""
    with interpreted():
        return triton.jit(function)
