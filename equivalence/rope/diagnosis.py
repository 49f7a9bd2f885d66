"""From a counterexample of a rotary embedding to the name of the mistake."""

from __future__ import annotations

from typing import Any

from equivalence.results import Diagnosis
from equivalence.verdict import Trouble


def diagnose(subject: Any, law: str, case: Any, trouble: Trouble) -> Diagnosis:
    """Name the mistake that makes the target of ``subject`` break ``law`` on ``case``."""
    return Diagnosis(kind="unknown", text=trouble.text)
