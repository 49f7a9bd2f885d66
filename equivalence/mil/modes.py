"""How a graph is rounded: three readings of one program."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from equivalence.errors import InvalidRequest, Unsupported

if TYPE_CHECKING:
    import torch

MODES: Final = ("wide", "strict", "double")
# MIL's name of a type -> torch's.
TORCH_NAMES: Final = {
    "fp16": "float16",
    "fp32": "float32",
    "fp64": "float64",
    "int8": "int8",
    "uint8": "uint8",
    "int16": "int16",
    "uint16": "int32",
    "int32": "int32",
    "uint32": "int64",
    "int64": "int64",
    "bool": "bool",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """One way to round.

    ``wide``: sums are accumulated in float32, and every operation's output is rounded to the type
    that the graph gives it. ``strict``: every operation runs in that type, with torch's kernel for
    it. ``double``: everything is float64 and nothing is rounded but the constants, which are
    stored; what is left over is algebra.
    """

    name: str

    @property
    def widens(self) -> bool:
        """Whether operations that accumulate get float32 images of their 16-bit operands."""
        return self.name == "wide"

    def stores(self, mil_type: str) -> torch.dtype:
        """The torch dtype that holds a value of this MIL type. Raises Unsupported."""
        return _stored(mil_type, self.name == "double")


@cache
def _stored(mil_type: str, double: bool) -> torch.dtype:
    import torch

    name = TORCH_NAMES.get(mil_type)
    if name is None:
        raise Unsupported(f"values of MIL type {mil_type} cannot be evaluated")
    found: torch.dtype = getattr(torch, name)
    return torch.float64 if double and found.is_floating_point else found


def mode_named(name: str) -> Mode:
    """The mode called ``name``; refuses an unknown one, listing the known ones."""
    if name not in MODES:
        raise InvalidRequest(f"mode={name!r} is not one of {', '.join(MODES)}")
    return Mode(name=name)
