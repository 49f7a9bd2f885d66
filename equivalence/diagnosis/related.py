"""A law about two calls broke and its case alone is right: look at the other calls it made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from equivalence.diagnosis.engine import judged
from equivalence.diagnosis.evidence import look
from equivalence.inputs import AttentionInputs
from equivalence.outcome import Outcome, Target
from equivalence.results import Diagnosis


class Listening:
    """A target that keeps the inputs of every call that is made of it."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.asked: list[AttentionInputs] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.target, name)

    def call(self, inputs: AttentionInputs, **more: Any) -> Outcome:
        """The outcome of the target."""
        self.asked.append(inputs)
        return self.target.call(inputs, **more)


def known_in_other_calls(
    target: Target,
    case: Any,
    check: Callable[[Any, Any], object],
    known: Sequence[Diagnosis],
) -> Diagnosis | None:
    """The first of ``known`` that explains a call which ``check(case, target)`` makes.

    A law about two calls starts from one that agrees with float64, so where they differ by more
    than the bound another call is wrong by itself, on inputs that no case describes. One call
    fits more than one mistake, so only those are asked that other cases have shown.
    """
    listening = Listening(target)
    with np.errstate(all="ignore"):
        check(case, listening)
        for inputs in listening.asked:
            sight = look(target, case, inputs)
            if sight is None or not sight.wrong.any():
                continue
            for diagnosis in known:
                if judged([sight], diagnosis.kind) is not None:
                    return diagnosis
    return None
