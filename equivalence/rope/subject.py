"""A rotary embedding together with what is expected of it, and a memory of its answers."""

from __future__ import annotations

from dataclasses import replace

from equivalence.bounds import Allowance
from equivalence.compare import Comparison
from equivalence.profiles import Profile
from equivalence.rope.bounds import allowance, angle_error
from equivalence.rope.case import RotaryCase
from equivalence.rope.domain import RotaryDomain
from equivalence.rope.inputs import RotaryInputs, rotary_inputs
from equivalence.rope.reference import Rotation, rotary
from equivalence.subject import CallInputs, SubjectOf
from equivalence.verdict import Verdict


class RotarySubject(SubjectOf[RotaryCase, RotaryDomain, RotaryInputs, Rotation]):
    """What the laws of rotary embeddings are checked on."""

    axes = ("batch row", "head", "token", "channel")
    reference = "the float64 rotation"

    def inputs(self, case: RotaryCase) -> RotaryInputs:
        """The tensors of ``case``."""
        return rotary_inputs(case)

    def evaluate(self, inputs: RotaryInputs) -> Rotation:
        """The float64 rotation of ``inputs``."""
        return rotary(inputs)

    def bound(self, inputs: RotaryInputs, exact: Rotation, profile: Profile) -> Allowance:
        """The error bound of ``inputs`` under ``profile``."""
        return allowance(inputs, exact, profile, self.declared.tables)

    def output_shape(self, inputs: RotaryInputs) -> tuple[int, ...]:
        """``(B, H, S, D)``, the shape of the input."""
        return inputs.x.shape

    def defined_rows(self, inputs: RotaryInputs) -> None:
        """Every token is turned."""

    def verdict(self, facts: Comparison, inputs: CallInputs, *, kind: str, than: str) -> Verdict:
        """The verdict on two outputs, with the position of the worst element and its angle."""
        verdict = self.plain_verdict(facts, inputs, kind=kind, than=than)
        if verdict.trouble is None or not isinstance(inputs, RotaryInputs):
            return verdict
        text = verdict.trouble.text + self._place(inputs, facts)
        return replace(verdict, trouble=replace(verdict.trouble, text=text))

    def plain_verdict(
        self, facts: Comparison, inputs: CallInputs, *, kind: str, than: str
    ) -> Verdict:
        """The verdict on lengths or scores, whose elements are no channels of an output."""
        return super().verdict(facts, inputs, kind=kind, than=than)

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
