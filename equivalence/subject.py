"""A target together with what is expected of it, and a memory of what it already answered."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Generic, Protocol, TypeVar

import numpy as np

from equivalence.bounds import Allowance, Weights, allowance, weights_of
from equivalence.case import AttentionCase
from equivalence.compare import Comparison, compare
from equivalence.domain import Domain
from equivalence.dtypes import Array
from equivalence.inputs import AttentionInputs, attention_inputs
from equivalence.outcome import Outcome, Target
from equivalence.profiles import Profile, profile_for
from equivalence.reference import Attention, attention, with_values
from equivalence.verdict import Trouble, Verdict, broken, refused

REMEMBERED: Final = 96
SOUND: Final = ("held", "vacuous")  # verdicts on an output that other laws may start from
AXES: Final = ("batch row", "query head", "query", "channel")
T = TypeVar("T")


class CallInputs(Protocol):
    """What the inputs of every kind have; hashed by identity."""

    @property
    def dtype(self) -> str:
        """The format that the tensors are stored in."""
        ...


class Exact(Protocol):
    """What the references of every kind have."""

    @property
    def output(self) -> Array:
        """The output, in float64."""
        ...


CaseT = TypeVar("CaseT")
DomainT = TypeVar("DomainT")
InputsT = TypeVar("InputsT", bound=CallInputs)
ExactT = TypeVar("ExactT", bound=Exact)


class BaseSubject(ABC, Generic[CaseT, DomainT, InputsT]):
    """A target, the domain of its cases, and a memory of what it already answered.

    What is found out is remembered per inputs object, so that the laws that look at one case
    share it.
    """

    axes: tuple[str, ...] = AXES  # what messages call the axes of an output

    def __init__(self, target: Target, domain: DomainT) -> None:
        self.target = target
        self.domain = domain
        # The outcomes that a law looks at, by their id; None while nobody wants their times.
        self.heard: dict[int, Outcome] | None = None
        self.overwrites = False  # whether any call has changed what the one before it returned
        self._memory: OrderedDict[tuple[str, InputsT], Any] = OrderedDict()

    @abstractmethod
    def inputs(self, case: CaseT) -> InputsT:
        """The tensors of ``case``."""

    @abstractmethod
    def output_shape(self, inputs: InputsT) -> tuple[int, ...]:
        """What shape a call must return."""

    @abstractmethod
    def judge(self, inputs: InputsT, outcome: Outcome) -> Verdict:
        """Compare an outcome with the float64 reference."""

    @property
    def declared(self) -> Any:
        """The declaration of the target."""
        return self.target.declaration

    def profile(self, dtype: str) -> Profile:
        """The precision profile that judges ``dtype``."""
        return profile_for(dtype, self.target.declaration.profile)

    def once(self, what: str, inputs: InputsT, make: Callable[[], T]) -> T:
        """What ``make`` gives, made once for ``what`` and ``inputs`` while both are in use."""
        key = (what, inputs)
        if key not in self._memory:
            self._memory[key] = make()
            if len(self._memory) > REMEMBERED:
                self._memory.popitem(last=False)
        answer: T = self._memory[key]
        return answer

    def call(self, inputs: InputsT) -> Outcome:
        """The target's outcome; the first one, when the same inputs were asked before."""
        return self._heard(self.once("call", inputs, lambda: self.target.call(inputs)))

    def call_again(self, inputs: InputsT, output_gradient: Array | None = None) -> Outcome:
        """A fresh call that is not remembered."""
        return self._heard(self.target.call(inputs, output_gradient=output_gradient))

    def _heard(self, outcome: Outcome) -> Outcome:
        self.overwrites |= outcome.overwrites
        if self.heard is not None:
            self.heard[id(outcome)] = outcome
        return outcome

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

    def sound(self, inputs: InputsT, outcome: Outcome) -> bool:
        """Whether an outcome agrees with the float64 reference; one that was refused does not.

        A law that relates two calls starts from a sound one: the bounds are those of a correct
        target, so on an output that is already wrong they would accuse laws that it keeps.
        """
        return self.once("sound", inputs, lambda: self.judge(inputs, outcome).status in SOUND)

    def verdict(self, facts: Comparison, inputs: CallInputs, *, kind: str, than: str) -> Verdict:
        """Turn the facts of a comparison into a verdict; ``than`` says what it disagrees with."""
        remarks: tuple[str, ...] = ()
        if facts.unjudged_nonfinite:
            remarks = ("non-finite output outside the domain of the profile",)
        if facts.passes:
            status: Any = "vacuous" if facts.vacuous else "held"
            return Verdict(status=status, used=facts.used, natural=facts.natural, remarks=remarks)
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
            where=whereabouts(facts.wrong, self.axes),
            profile=self.profile(inputs.dtype).name,
        )
        return Verdict(status="broken", used=facts.used, natural=facts.natural, trouble=trouble)


class SubjectOf(
    BaseSubject[CaseT, DomainT, InputsT], ABC, Generic[CaseT, DomainT, InputsT, ExactT]
):
    """What the laws of one kind of call with one output of rank 4 are checked on."""

    reference: str = "float64 attention"  # what messages call the exact output

    @abstractmethod
    def evaluate(self, inputs: InputsT) -> ExactT:
        """The float64 reference of ``inputs``."""

    @abstractmethod
    def bound(self, inputs: InputsT, exact: ExactT, profile: Profile) -> Allowance:
        """The error bound of ``inputs`` under ``profile``."""

    @abstractmethod
    def defined_rows(self, inputs: InputsT) -> Array | None:
        """The rows ``[B, H, Sq]`` that every correct target agrees about; None for all of them."""

    def alike(self, inputs: InputsT, other: InputsT) -> None:
        """Remember that ``other`` holds the numbers of ``inputs``: one reference, one bound."""
        exact, allowed = self.exact(inputs), self.allowance(inputs)
        self.once("exact", other, lambda: exact)
        self.once("allowance", other, lambda: allowed)

    def exact(self, inputs: InputsT) -> ExactT:
        """The float64 reference of ``inputs``, evaluated once."""
        return self.once("exact", inputs, lambda: self.evaluate(inputs))

    def allowance(self, inputs: InputsT) -> Allowance:
        """The error bound of ``inputs`` under the profile of their dtype."""
        profile = self.profile(inputs.dtype)
        return self.once(
            "allowance", inputs, lambda: self.bound(inputs, self.exact(inputs), profile)
        )

    def judge(self, inputs: InputsT, outcome: Outcome) -> Verdict:
        """Compare an outcome with the float64 reference, on the rows that are defined."""
        if (problem := self.unusable(inputs, outcome)) is not None:
            return problem
        facts = compare(
            outcome.output,
            self.exact(inputs).output,
            self.allowance(inputs),
            dtype=inputs.dtype,
            rows=self.defined_rows(inputs),
        )
        return self.verdict(facts, inputs, kind="outside-bound", than=self.reference)

    def same(
        self,
        inputs: InputsT,
        actual: Array,
        expected: Array,
        *,
        slack: Array | float = 0.0,
        at: Any = ...,
        rows: Array | None = None,
        kind: str = "disagreement",
        than: str,
    ) -> Verdict:
        """Whether two outputs that are equal in exact arithmetic agree within their bounds.

        The bound of ``inputs`` plus ``slack``, the bound of the other. ``at`` says which rows of
        the output of ``inputs`` are compared, an index of ``[B, H, Sq]``: a call for a part of
        them has their bound, and need not be evaluated again.
        """
        own, defined = self.allowance(inputs).at(at), self.defined_rows(inputs)
        if defined is not None:
            defined = defined[at]
        if rows is not None:
            defined = rows if defined is None else rows & defined
        both = replace(own, allowed=own.allowed + slack)
        facts = compare(actual, expected, both, dtype=inputs.dtype, rows=defined)
        return self.verdict(facts, inputs, kind=kind, than=than)


class AttentionSubject(SubjectOf[CaseT, DomainT, InputsT, Attention]):
    """What the laws of a softmax-weighted sum ``[B, H, Sq, Dv]`` are checked on."""

    def defined_rows(self, inputs: InputsT) -> Array:
        """The rows that see at least one key."""
        return self.exact(inputs).seen > 0


class Subject(AttentionSubject[AttentionCase, Domain, AttentionInputs]):
    """What the laws of attention are checked on."""

    def inputs(self, case: AttentionCase) -> AttentionInputs:
        """The tensors of ``case``."""
        return attention_inputs(case)

    def evaluate(self, inputs: AttentionInputs) -> Attention:
        """float64 attention of ``inputs``."""
        return attention(inputs)

    def bound(self, inputs: AttentionInputs, exact: Attention, profile: Profile) -> Allowance:
        """The error bound of ``inputs`` under ``profile``."""
        weights = self.weights(inputs) if profile == self.profile(inputs.dtype) else None
        return allowance(inputs, exact, profile, weights=weights)

    def weights(self, inputs: AttentionInputs) -> Weights:
        """What is weighed in each row, and how far off the scores may be, evaluated once."""
        profile = self.profile(inputs.dtype)
        return self.once("weights", inputs, lambda: weights_of(inputs, self.exact(inputs), profile))

    def revalued(self, inputs: AttentionInputs, value: Array) -> AttentionInputs:
        """``inputs`` with other values, of which the scores and weights are known."""
        other = inputs.but(value=value)
        exact, weights = self.exact(inputs), self.weights(inputs)
        self.once("exact", other, lambda: with_values(exact, value[:, inputs.kv_head_of]))
        self.once("weights", other, lambda: weights)
        return other

    def output_shape(self, inputs: AttentionInputs) -> tuple[int, ...]:
        """``(B, H, Sq, Dv)``, what a call must return."""
        return (*inputs.query.shape[:3], inputs.value.shape[3])


def whereabouts(wrong: Array, axes: tuple[str, ...] = AXES) -> str:
    """In words, the part of an output, its axes called ``axes``, that holds every wrong element."""
    found = []
    for axis, name in enumerate(axes):
        others = tuple(a for a in range(wrong.ndim) if a != axis)
        hit = np.flatnonzero(wrong.any(axis=others))
        if 0 < len(hit) < wrong.shape[axis] and len(hit) <= 3:
            listed = ", ".join(str(place) for place in hit)
            several = f"{name[:-1]}ies" if name.endswith("y") else f"{name}s"
            found.append(f"{name if len(hit) == 1 else several} {listed}")
    return "all in " + ", ".join(found) if found else "spread over the whole output"
