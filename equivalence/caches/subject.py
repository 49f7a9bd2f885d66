"""A cache factory together with what is expected of it."""

from __future__ import annotations

from typing import Any

from equivalence.bounds import Allowance
from equivalence.caches.inputs import cache_inputs
from equivalence.caches.quantised import quantised_allowance
from equivalence.outcome import Target
from equivalence.piecewise import Piece, PiecewiseSubject


class CacheSubject(PiecewiseSubject):
    """Judges each answer of a program; quantised caches within their own bound."""

    def __init__(self, target: Target, domain: Any) -> None:
        super().__init__(target, domain, cache_inputs)

    def bound(self, piece: Piece) -> Allowance:
        """The error bound of one answer."""
        if self.declared.quantised is not None:
            return quantised_allowance(piece, self.profile(piece.inputs.dtype))
        return super().bound(piece)
