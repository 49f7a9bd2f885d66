"""Name the mistake behind a counterexample; the work is done in :mod:`equivalence.diagnosis`."""

from __future__ import annotations

from equivalence.diagnosis import diagnose

__all__ = ["diagnose"]
