"""The operations that can be evaluated, each a function of tensors and plain parameters."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeVar

FAMILIES: Final = ("elementwise", "products", "reductions", "shapes", "indexing", "choices")
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """How one MIL operation is evaluated.

    function: takes the operation's inputs by MIL's own names, ``tensors`` first: those that it
    wants as tensors; all others arrive as plain numbers, words or lists. accumulates: it sums, so
    that the mode decides what in. An absent optional input is not passed.
    """

    name: str
    function: Callable[..., Any]
    tensors: tuple[str, ...]
    accumulates: bool


_TABLE: Final[dict[str, Operation]] = {}


def operation(*names: str, tensors: str = "x", accumulates: bool = False) -> Callable[[F], F]:
    """Register a function for the operations ``names``; ``tensors`` as words in one string."""

    def register(function: F) -> F:
        for name in names:
            _TABLE[name] = Operation(
                name=name,
                function=function,
                tensors=tuple(tensors.split()),
                accumulates=accumulates,
            )
        return function

    return register


@cache
def operations() -> dict[str, Operation]:
    """Every operation that can be evaluated, by MIL's name."""
    for family in FAMILIES:
        importlib.import_module(f"equivalence.mil.{family}")
    return _TABLE
