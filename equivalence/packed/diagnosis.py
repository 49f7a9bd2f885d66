"""Name the mistake behind a counterexample."""

from __future__ import annotations

from typing import Any

from equivalence.results import Diagnosis
from equivalence.verdict import Trouble


def diagnose(subject: Any, law: str, case: Any, trouble: Trouble) -> Diagnosis:
    """What is known without an experiment."""
    return Diagnosis(kind="unknown", text=trouble.text)
