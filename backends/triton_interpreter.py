"""Triton, in its interpreter where there is no GPU: that must be chosen before Triton is loaded."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any, Final

import torch

from equivalence.errors import Unsupported

INTERPRETED: Final = not torch.cuda.is_available()
if INTERPRETED and "triton" not in sys.modules:
    os.environ["TRITON_INTERPRET"] = "1"
triton: Any = importlib.import_module("triton")
tl: Any = importlib.import_module("triton.language")


def require_interpreter() -> None:
    """Raise Unsupported where Triton was loaded before the interpreter could be chosen."""
    if INTERPRETED and not triton.knobs.runtime.interpret:
        raise Unsupported("triton was loaded in this process before its interpreter was chosen")
