"""Tiny calls, one for each feature of a target: what is refused there is written down."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from equivalence.arrays import meant_for_numpy
from equivalence.dtypes import DTYPES
from equivalence.outcome import Target
from equivalence.trials import Trials

# The format in which a target is most likely to answer at all comes first.
PREFERRED: Final = ("float32", "bfloat16", "float16", "float64")
# A call that dies or hangs may cost its whole time limit: a target that does so again and again
# is not asked in a hundred shapes.
MOST_CRASHES: Final = 3


class TinyCalls:
    """Calls a target on tiny cases, whose tensors ``make`` makes, and notes every refusal."""

    def __init__(self, target: Target, trials: Trials, make: Callable[[Any], Any]) -> None:
        self.target = target
        self.trials = trials
        self.make = make

    def works(self, case: Any, feature: str | None = None) -> bool:
        """Whether ``case`` is answered; a refusal is noted under ``feature``."""
        supported = self.target.supports(case)
        if supported is True:
            outcome = self.target.call(self.make(case))
            if outcome.status == "returned":
                return True
            if outcome.status in ("died", "hung", "memory"):
                self.trials.crashes.append((case, outcome))
            text = outcome.text + meant_for_numpy(self.target.declaration.arrays, outcome.text)
        else:
            text = str(supported) or "excluded by its author"
        if feature is not None:
            self.trials.not_exercised.setdefault(feature, text)
        return False

    def accepted(self, feature: str, cases: Mapping[Any, Any]) -> tuple[Any, ...]:
        """The keys of ``cases`` that work; a refused one is noted as "feature key"."""
        return tuple(key for key, case in cases.items() if self.works(case, f"{feature} {key}"))

    def offered(self, option: str) -> bool:
        """Whether the signature takes ``option``; notes it as not exercised otherwise."""
        if option in self.target.options:
            return True
        self.trials.not_exercised.setdefault(option, "not among its options")
        return False

    def option(self, option: str, case: Any) -> bool:
        """Whether the signature takes ``option``, and the tiny case with it works."""
        return self.offered(option) and self.works(case, option)

    def base(self, cases: Iterable[Any]) -> Any:
        """The first of ``cases`` that works, noted as the base of the trials; None for none."""
        for case in cases:
            if self.works(case, "anything"):
                self.trials.not_exercised.pop("anything", None)
                self.trials.base = case
                return case
            if len(self.trials.crashes) >= MOST_CRASHES:
                break
        return None

    def formats(self, base: Any, wanted: Iterable[str]) -> tuple[str, ...]:
        """Which of the dtypes ``wanted`` work; refusing a declared one contradicts it."""
        wanted = tuple(wanted)
        taken = self.accepted("dtype", {dtype: base.but(dtype=dtype) for dtype in wanted})
        for dtype in self.target.declaration.dtypes or ():
            if dtype in wanted and dtype not in taken:
                self.contradicted(f"dtype {dtype}", base.but(dtype=dtype))
        return tuple(dtype for dtype in DTYPES if dtype in taken)

    def contradicted(self, feature: str, case: Any) -> None:
        """Note that a declared feature was refused on ``case``."""
        text = f"declared {feature}: {self.trials.not_exercised[feature]}"
        self.trials.contradictions.append((case, text))
