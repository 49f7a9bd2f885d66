"""From a counterexample to the name of the mistake, by re-running the reference with it."""

from __future__ import annotations

from equivalence.diagnosis.engine import diagnose
from equivalence.diagnosis.imagining import Sight, Suspect, World
from equivalence.diagnosis.table import register, suspects

__all__ = ["Sight", "Suspect", "World", "diagnose", "register", "suspects"]
