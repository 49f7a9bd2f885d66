"""Torch's flex_attention module, and its switch between the definition and compiled kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

# `torch.nn.attention.flex_attention` names a function as well; this is the module.
flex: Any = import_module("torch.nn.attention.flex_attention")


@contextmanager
def uncompiled() -> Iterator[None]:
    """Torch's own switch that runs the definition directly: no dynamo, no warning."""
    before = flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG
    flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = True
    try:
        yield
    finally:
        flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = before
