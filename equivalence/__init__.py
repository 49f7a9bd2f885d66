"""Check that ways of computing attention compute the same thing.

    @equivalence.attention(causal="lower_right")    record what a kernel promises
    equivalence.conformance(kernel)                 an ordinary pytest test of it
    equivalence.Unsupported                         raise it for a case that a kernel refuses

Names are loaded when they are used, so that importing this package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from equivalence.caches.case import CacheCase
    from equivalence.case import AttentionCase, HeadLayout
    from equivalence.converters.case import ConverterCase
    from equivalence.declaration import (
        Declaration,
        attention,
        converter,
        kv_cache,
        mla,
        paged,
        rotary,
        varlen,
    )
    from equivalence.errors import InvalidRequest, Unsupported
    from equivalence.latent.case import MlaCase
    from equivalence.masks import Mask
    from equivalence.packed.case import PagedCase, VarlenCase
    from equivalence.rope.case import RotaryCase
    from equivalence.rope.scaling import RopeScaling
    from equivalence.testing import Disagreement, conformance

__all__ = [
    "AttentionCase",
    "CacheCase",
    "ConverterCase",
    "Declaration",
    "Disagreement",
    "HeadLayout",
    "InvalidRequest",
    "Mask",
    "MlaCase",
    "PagedCase",
    "RopeScaling",
    "RotaryCase",
    "Unsupported",
    "VarlenCase",
    "attention",
    "conformance",
    "converter",
    "kv_cache",
    "mla",
    "paged",
    "rotary",
    "varlen",
]

_HOMES = {
    "AttentionCase": "equivalence.case",
    "CacheCase": "equivalence.caches.case",
    "ConverterCase": "equivalence.converters.case",
    "Declaration": "equivalence.declaration",
    "Disagreement": "equivalence.testing",
    "HeadLayout": "equivalence.case",
    "InvalidRequest": "equivalence.errors",
    "Mask": "equivalence.masks",
    "MlaCase": "equivalence.latent.case",
    "PagedCase": "equivalence.packed.case",
    "RopeScaling": "equivalence.rope.scaling",
    "RotaryCase": "equivalence.rope.case",
    "Unsupported": "equivalence.errors",
    "VarlenCase": "equivalence.packed.case",
    "attention": "equivalence.declaration",
    "conformance": "equivalence.testing",
    "converter": "equivalence.declaration",
    "kv_cache": "equivalence.declaration",
    "mla": "equivalence.declaration",
    "paged": "equivalence.declaration",
    "rotary": "equivalence.declaration",
    "varlen": "equivalence.declaration",
}


if not TYPE_CHECKING:  # which knows the names from above, and shall refuse all others

    def __getattr__(name: str) -> Any:
        if name in _HOMES:
            from importlib import import_module

            return getattr(import_module(_HOMES[name]), name)
        raise AttributeError(f"module 'equivalence' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
