"""A repr that can be pasted back: keyword arguments, and only those that differ from defaults."""

from __future__ import annotations

from dataclasses import fields
from typing import Any


def defaults_omitted(self: Any) -> str:
    """``Name(field=value, ...)`` with the fields whose value is not their default."""
    shown = (
        f"{field.name}={getattr(self, field.name)!r}"
        for field in fields(self)
        if getattr(self, field.name) != field.default
    )
    return f"{type(self).__name__}({', '.join(shown)})"
