"""A converter together with what is expected of what it converts."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from equivalence.case import AttentionCase
from equivalence.converters.case import ConverterCase
from equivalence.converters.domain import ConverterDomain
from equivalence.converters.inputs import ConverterInputs, asked_inputs, converter_inputs
from equivalence.converters.projected_subject import ProjectedSubject
from equivalence.declaration import Declaration
from equivalence.domain import Domain
from equivalence.dtypes import Array
from equivalence.latent.case import MlaCase
from equivalence.latent.domain import MlaDomain
from equivalence.latent.subject import MlaSubject
from equivalence.outcome import Outcome, Target
from equivalence.profiles import Profile, profile_for
from equivalence.rope.domain import RotaryDomain
from equivalence.rope.subject import RotarySubject
from equivalence.subject import Subject
from equivalence.verdict import Verdict

REMEMBERED: Final = 64
T = TypeVar("T")


class _Judge:
    """Stands for the converted module where another kind judges it: it is never called."""

    def __init__(self, target: Target) -> None:
        self.name: Final = target.name
        self.declaration: Final[Declaration] = target.declaration
        self.options: Final[Mapping[str, str]] = {}

    def call(self, inputs: Any, *, output_gradient: Array | None = None) -> Outcome:
        raise NotImplementedError

    def supports(self, case: Any) -> bool | str:
        return True

    def close(self) -> None:
        return


class ConverterSubject:
    """What the laws of converters are checked on; each family is judged by its own kind."""

    def __init__(self, target: Target, domain: ConverterDomain) -> None:
        self.target = target
        self.domain = domain
        self.heard: dict[int, Outcome] | None = None  # as in BaseSubject
        judge = _Judge(target)
        self._projected = ProjectedSubject(judge, domain)
        self._attention = Subject(judge, Domain())
        self._latent = MlaSubject(judge, MlaDomain())
        self._rotary = RotarySubject(judge, RotaryDomain())
        self._memory: OrderedDict[tuple[str, Any], Any] = OrderedDict()

    @property
    def declared(self) -> Declaration:
        """The declaration of the target."""
        return self.target.declaration

    def profile(self, dtype: str) -> Profile:
        """The precision profile that judges ``dtype``."""
        return profile_for(dtype, self.target.declaration.profile)

    def inputs(self, case: ConverterCase) -> ConverterInputs:
        """What the target is called with."""
        return converter_inputs(case)

    def judge_of(self, case: ConverterCase) -> Any:
        """The subject of the kind of attention that ``case`` computes."""
        if case.compression is not None and case.about.family != "mla":
            return self._projected
        asked = case.asked
        if isinstance(asked, AttentionCase):
            return self._attention
        return self._latent if isinstance(asked, MlaCase) else self._rotary

    def _once(self, what: str, key: Any, make: Callable[[], T]) -> T:
        if (what, key) not in self._memory:
            self._memory[what, key] = make()
            if len(self._memory) > REMEMBERED:
                self._memory.popitem(last=False)
        answer: T = self._memory[what, key]
        return answer

    def call(self, inputs: ConverterInputs) -> Outcome:
        """The target's outcome; the first one, when the same case was asked before."""
        outcome = self._once("call", inputs.case, lambda: self.target.call(inputs))
        if self.heard is not None:
            self.heard[id(outcome)] = outcome
        return outcome

    def outcome(self, case: ConverterCase) -> Outcome:
        """What came of converting ``case`` and calling the result."""
        return self.call(self.inputs(case))

    def outcome_again(self, case: ConverterCase) -> Outcome:
        """The same after the converted module was called with other numbers."""
        return self.target.call(converter_inputs(case, True))

    def judge(self, case: ConverterCase, outcome: Outcome) -> Verdict:
        """Compare an outcome with the float64 definition of what the module computes."""
        verdict: Verdict = self.judge_of(case).judge(asked_inputs(case), outcome)
        return verdict

    def sound(self, case: ConverterCase) -> bool:
        """Whether the outcome of ``case`` agrees; laws that relate two outcomes start from it."""
        return self._once(
            "sound",
            case,
            lambda: self.judge(case, self.outcome(case)).status in ("held", "vacuous"),
        )

    def source(self, case: ConverterCase) -> Array:
        """What the module itself returns in torch, before it is converted (float32 or wider)."""
        from equivalence.converters.source import source_output

        return self._once("source", case, lambda: source_output(case))
