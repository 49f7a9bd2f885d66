"""Laws: properties that every correct implementation has, one file for each family."""

from __future__ import annotations

# Importing a family registers its laws, in the order in which reports list them.
from equivalence.laws import (  # noqa: F401
    agreement,
    cache_bytes,
    cache_memory,
    caches,
    conduct,
    converters,
    gradients,
    isolation,
    mla,
    mla_layer,
    mla_order,
    mla_structure,
    order,
    packed,
    paged,
    rotary,
    rotary_conduct,
    rotary_scaling,
    splitting,
    symmetry,
)
from equivalence.laws.law import LAWS, Law, law_named

__all__ = ["LAWS", "Law", "all_laws", "law_named"]


def all_laws(kind: str = "attention") -> tuple[Law, ...]:
    """The laws for one kind of target, in the order in which reports list them."""
    return tuple(law for law in LAWS.values() if law.kind == kind)
