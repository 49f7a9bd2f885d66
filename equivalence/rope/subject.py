"""A rotary embedding together with what is expected of it, and a memory of its answers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, TypeVar

import numpy as np

from equivalence.bounds import Allowance
from equivalence.compare import Comparison, compare
from equivalence.dtypes import Array
from equivalence.outcome import Outcome, Target
from equivalence.profiles import Profile, profile_for
from equivalence.rope.bounds import allowance, angle_error
from equivalence.rope.case import RotaryCase
from equivalence.rope.domain import RotaryDomain
from equivalence.rope.inputs import RotaryInputs, rotary_inputs
from equivalence.rope.reference import Rotation, rotary
from equivalence.verdict import Trouble, Verdict, broken, refused

REMEMBERED: Final = 48
AXES: Final = ("batch row", "head", "token", "channel")
T = TypeVar("T")


class RotarySubject:
    """What the laws of rotary embeddings are checked on.

    Calls, references and bounds are remembered per inputs object, so that the laws that look at
    one case share them.
    """

    def __init__(self, target: Target, domain: RotaryDomain) -> None:
        self.target = target
        self.domain = domain
        self._memory: OrderedDict[tuple[str, RotaryInputs], Any] = OrderedDict()

    @property
    def declared(self) -> Any:
        """The declaration of the target."""
        return self.target.declaration

    def profile(self, dtype: str) -> Profile:
        """The precision profile that judges ``dtype``."""
        return profile_for(dtype, self.target.declaration.profile)

    def inputs(self, case: RotaryCase) -> RotaryInputs:
        """The tensors of ``case``."""
        return rotary_inputs(case)

    def _once(self, what: str, inputs: RotaryInputs, make: Callable[[], T]) -> T:
        key = (what, inputs)
        if key not in self._memory:
            self._memory[key] = make()
            if len(self._memory) > REMEMBERED:
                self._memory.popitem(last=False)
        answer: T = self._memory[key]
        return answer

    def call(self, inputs: RotaryInputs) -> Outcome:
        """The target's outcome; the first one, when the same inputs were asked before."""
        return self._once("call", inputs, lambda: self.target.call(inputs))

    def call_again(self, inputs: RotaryInputs) -> Outcome:
        """A fresh call that is not remembered."""
        return self.target.call(inputs)

    def exact(self, inputs: RotaryInputs) -> Rotation:
        """The float64 rotation of ``inputs``."""
        return self._once("exact", inputs, lambda: rotary(inputs))

    def allowance(self, inputs: RotaryInputs) -> Allowance:
        """The error bound of ``inputs`` under the profile of their dtype."""
        return self._once(
            "allowance",
            inputs,
            lambda: allowance(
                inputs, self.exact(inputs), self.profile(inputs.dtype), self.declared.tables
            ),
        )

    def unusable(self, inputs: RotaryInputs, outcome: Outcome) -> Verdict | None:
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
        if outcome.stored is None:
            return broken(Trouble(kind="wrong-shape", text=outcome.text))
        if outcome.stored.shape != inputs.x.shape:
            text = f"output has shape {list(outcome.stored.shape)}, expected {list(inputs.x.shape)}"
            return broken(Trouble(kind="wrong-shape", text=text))
        if outcome.dtype != inputs.dtype:
            text = f"output is {outcome.dtype}, expected {inputs.dtype}"
            return broken(Trouble(kind="wrong-dtype", text=text))
        return None

    def judge(self, inputs: RotaryInputs, outcome: Outcome) -> Verdict:
        """Compare an outcome with the float64 rotation."""
        if (problem := self.unusable(inputs, outcome)) is not None:
            return problem
        facts = compare(
            outcome.output,
            self.exact(inputs).output,
            self.allowance(inputs),
            dtype=inputs.dtype,
        )
        return self.verdict(facts, inputs, kind="outside-bound", than="the float64 rotation")

    def sound(self, inputs: RotaryInputs, outcome: Outcome) -> bool:
        """Whether an outcome agrees with the float64 rotation; relations start from such a one."""
        return self._once("sound", inputs, lambda: self.judge(inputs, outcome).status != "broken")

    def verdict(
        self,
        facts: Comparison,
        inputs: RotaryInputs,
        *,
        kind: str,
        than: str,
        by_channel: bool = True,
    ) -> Verdict:
        """Turn the facts of a comparison into a verdict; ``than`` says what it disagrees with.

        by_channel: whether outputs were compared, and not lengths or scores.
        """
        remarks: tuple[str, ...] = ()
        if facts.unjudged_nonfinite:
            remarks = ("non-finite output outside the domain of the profile",)
        if facts.passes:
            status: Any = "vacuous" if facts.vacuous else "held"
            return Verdict(status=status, used=facts.used, natural=facts.natural, remarks=remarks)
        place = self._place(inputs, facts) if by_channel else ""
        trouble = Trouble(
            kind="non-finite" if facts.nonfinite else kind,
            text=f"disagrees with {than} at output{list(facts.index)}{place}",
            index=facts.index,
            got=facts.got,
            expected=facts.expected,
            error=facts.error,
            allowed=facts.allowed,
            used=facts.used,
            outside=facts.outside,
            total=facts.judged,
            where=whereabouts(facts.wrong),
            profile=self.profile(inputs.dtype).name,
        )
        return Verdict(status="broken", used=facts.used, natural=facts.natural, trouble=trouble)

    def _place(self, inputs: RotaryInputs, facts: Comparison) -> str:
        """The position of the worst element, and how far its angle may be off."""
        rows, exact = inputs.by_row, self.exact(inputs)
        batch, _, slot, channel = facts.index
        row = batch % len(rows)
        if not exact.moves[channel]:
            return f", position {rows[row, slot]:,}, a channel that must not move"
        off = angle_error(inputs, exact, self.declared.tables or "float32")[row, 0, slot, channel]
        angle = exact.angle[row, 0, slot, channel]
        return f", position {rows[row, slot]:,} (angle {angle:.6g}, which may be {off:.2g} off)"

    def same(
        self,
        inputs: RotaryInputs,
        actual: Array,
        expected: Array,
        *,
        slack: Array | float = 0.0,
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
        facts = compare(actual, expected, both, dtype=inputs.dtype)
        return self.verdict(facts, inputs, kind=kind, than=than)


def whereabouts(wrong: Array) -> str:
    """In words, the part of a ``[B, H, S, D]`` output that holds every wrong element."""
    found = []
    for axis, name in enumerate(AXES):
        hit = np.flatnonzero(wrong.any(axis=tuple(a for a in range(wrong.ndim) if a != axis)))
        if 0 < len(hit) < wrong.shape[axis] and len(hit) <= 3:
            listed = ", ".join(str(place) for place in hit)
            found.append(f"{name}{'' if len(hit) == 1 else 's'} {listed}")
    return "all in " + ", ".join(found) if found else "spread over the whole output"
