"""A target together with what is expected of it, and a memory of what it already answered."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

import numpy as np

from equivalence.bounds import Allowance, allowance
from equivalence.case import AttentionCase
from equivalence.compare import Comparison, compare
from equivalence.domain import Domain
from equivalence.dtypes import Array
from equivalence.inputs import AttentionInputs, attention_inputs
from equivalence.outcome import Outcome, Target
from equivalence.profiles import Profile, profile_for
from equivalence.reference import Attention, attention
from equivalence.verdict import Trouble, Verdict, broken, refused

REMEMBERED: Final = 48
T = TypeVar("T")


class CallInputs(Protocol):
    """What the inputs of every kind have; hashed by identity."""

    @property
    def dtype(self) -> str:
        """The format that the tensors are stored in."""


CaseT = TypeVar("CaseT")
DomainT = TypeVar("DomainT")
InputsT = TypeVar("InputsT", bound=CallInputs)


class SubjectOf(ABC, Generic[CaseT, DomainT, InputsT]):
    """What the laws of one kind of softmax-weighted sum ``[B, H, Sq, Dv]`` are checked on.

    Calls, references and bounds are remembered per inputs object, so that the laws that look at
    one case share them.
    """

    def __init__(self, target: Target, domain: DomainT) -> None:
        self.target = target
        self.domain = domain
        self._memory: OrderedDict[tuple[str, InputsT], Any] = OrderedDict()

    @abstractmethod
    def inputs(self, case: CaseT) -> InputsT:
        """The tensors of ``case``."""

    @abstractmethod
    def evaluate(self, inputs: InputsT) -> Attention:
        """The float64 reference of ``inputs``."""

    @abstractmethod
    def bound(self, inputs: InputsT, exact: Attention, profile: Profile) -> Allowance:
        """The error bound of ``inputs`` under ``profile``."""

    @abstractmethod
    def output_shape(self, inputs: InputsT) -> tuple[int, ...]:
        """``(B, H, Sq, Dv)``, what a call must return."""

    @property
    def declared(self) -> Any:
        """The declaration of the target."""
        return self.target.declaration

    def profile(self, dtype: str) -> Profile:
        """The precision profile that judges ``dtype``."""
        return profile_for(dtype, self.target.declaration.profile)

    def _once(self, what: str, inputs: InputsT, make: Callable[[], T]) -> T:
        key = (what, inputs)
        if key not in self._memory:
            self._memory[key] = make()
            if len(self._memory) > REMEMBERED:
                self._memory.popitem(last=False)
        answer: T = self._memory[key]
        return answer

    def call(self, inputs: InputsT) -> Outcome:
        """The target's outcome; the first one, when the same inputs were asked before."""
        return self._once("call", inputs, lambda: self.target.call(inputs))

    def call_again(self, inputs: InputsT, output_gradient: Array | None = None) -> Outcome:
        """A fresh call that is not remembered."""
        return self.target.call(inputs, output_gradient=output_gradient)

    def exact(self, inputs: InputsT) -> Attention:
        """The float64 reference of ``inputs``, evaluated once."""
        return self._once("exact", inputs, lambda: self.evaluate(inputs))

    def allowance(self, inputs: InputsT) -> Allowance:
        """The error bound of ``inputs`` under the profile of their dtype."""
        profile = self.profile(inputs.dtype)
        return self._once(
            "allowance", inputs, lambda: self.bound(inputs, self.exact(inputs), profile)
        )

    def unusable(self, inputs: InputsT, outcome: Outcome) -> Verdict | None:
        """The verdict on an outcome that holds no output of the right shape and dtype."""
        match outcome.status:
            case "refused":
                return refused(outcome.text)
            case "raised" | "died":
                return broken(Trouble(kind="crash", text=outcome.text))
            case "hung":
                return broken(Trouble(kind="hang", text=outcome.text))
            case "memory":
                return broken(Trouble(kind="memory", text=outcome.text))
            case "returned":
                pass
        expected = self.output_shape(inputs)
        if outcome.stored is None:
            return broken(Trouble(kind="wrong-shape", text=outcome.text))
        if outcome.stored.shape != expected:
            text = f"output has shape {list(outcome.stored.shape)}, expected {list(expected)}"
            return broken(Trouble(kind="wrong-shape", text=text))
        if outcome.dtype != inputs.dtype:
            text = f"output is {outcome.dtype}, expected {inputs.dtype}"
            return broken(Trouble(kind="wrong-dtype", text=text))
        return None

    def judge(self, inputs: InputsT, outcome: Outcome) -> Verdict:
        """Compare an outcome with float64 attention, on the rows that see at least one key."""
        if (problem := self.unusable(inputs, outcome)) is not None:
            return problem
        exact = self.exact(inputs)
        facts = compare(
            outcome.output,
            exact.output,
            self.allowance(inputs),
            dtype=inputs.dtype,
            rows=exact.seen > 0,
        )
        return self.verdict(facts, inputs, kind="outside-bound", than="float64 attention")

    def sound(self, inputs: InputsT, outcome: Outcome) -> bool:
        """Whether an outcome agrees with float64 attention.

        A law that relates two calls starts from a sound one: the bounds are those of correct
        attention, so on an output that is already wrong they would accuse laws that it keeps.
        """
        return self._once("sound", inputs, lambda: self.judge(inputs, outcome).status != "broken")

    def verdict(self, facts: Comparison, inputs: InputsT, *, kind: str, than: str) -> Verdict:
        """Turn the facts of a comparison into a verdict; ``than`` says what it disagrees with."""
        remarks: tuple[str, ...] = ()
        if facts.unjudged_nonfinite:
            remarks = ("non-finite output outside the domain of the profile",)
        if facts.passes:
            status: Any = "vacuous" if facts.vacuous else "held"
            return Verdict(status=status, used=facts.used, natural=facts.natural, remarks=remarks)
        profile = self.profile(inputs.dtype).name
        trouble = Trouble(
            kind="non-finite" if facts.nonfinite else kind,
            text=f"disagrees with {than} at output{list(facts.index)}",
            index=facts.index,
            got=facts.got,
            expected=facts.expected,
            error=facts.error,
            allowed=facts.allowed,
            used=facts.used,
            outside=facts.outside,
            total=facts.judged,
            where=whereabouts(facts.wrong),
            profile=profile,
        )
        return Verdict(status="broken", used=facts.used, natural=facts.natural, trouble=trouble)

    def same(
        self,
        inputs: InputsT,
        actual: Array,
        expected: Array,
        *,
        slack: Array | float = 0.0,
        rows: Array | None = None,
        kind: str = "disagreement",
        than: str,
    ) -> Verdict:
        """Whether two outputs that are equal in exact arithmetic agree within their bounds.

        The bound of ``inputs`` (whose rows are compared) plus ``slack``, the bound of the other.
        """
        own = self.allowance(inputs)
        both = Allowance(
            allowed=own.allowed + slack,
            furthest=own.furthest,
            natural=own.natural,
            in_domain=own.in_domain,
        )
        seen = self.exact(inputs).seen > 0
        facts = compare(
            actual, expected, both, dtype=inputs.dtype, rows=seen if rows is None else rows & seen
        )
        return self.verdict(facts, inputs, kind=kind, than=than)


class Subject(SubjectOf[AttentionCase, Domain, AttentionInputs]):
    """What the laws of attention are checked on."""

    def inputs(self, case: AttentionCase) -> AttentionInputs:
        """The tensors of ``case``."""
        return attention_inputs(case)

    def evaluate(self, inputs: AttentionInputs) -> Attention:
        """float64 attention of ``inputs``."""
        return attention(inputs)

    def bound(self, inputs: AttentionInputs, exact: Attention, profile: Profile) -> Allowance:
        """The error bound of ``inputs`` under ``profile``."""
        return allowance(inputs, exact, profile)

    def output_shape(self, inputs: AttentionInputs) -> tuple[int, ...]:
        """``(B, H, Sq, Dv)``, what a call must return."""
        return (*inputs.query.shape[:3], inputs.value.shape[3])


def whereabouts(wrong: Array) -> str:
    """In words, the part of a ``[B, H, Sq, Dv]`` output that holds every wrong element."""
    names = ("batch row", "query head", "query", "channel")
    found = []
    for axis, name in enumerate(names):
        others = tuple(a for a in range(wrong.ndim) if a != axis)
        hit = np.flatnonzero(wrong.any(axis=others))
        if 0 < len(hit) < wrong.shape[axis] and (len(hit) <= 3):
            listed = ", ".join(str(i) for i in hit)
            found.append(f"{name}{'' if len(hit) == 1 else 's'} {listed}")
    return "all in " + ", ".join(found) if found else "spread over the whole output"
