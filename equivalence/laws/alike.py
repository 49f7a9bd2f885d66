"""What laws of several kinds say in the same words: of conduct, of bits, and of NaN."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, Protocol, TypeVar

import numpy as np

from equivalence.compare import other_bits
from equivalence.dtypes import Array
from equivalence.outcome import Outcome
from equivalence.piecewise import PiecewiseSubject
from equivalence.subject import BaseSubject, SubjectOf
from equivalence.verdict import HELD, INAPPLICABLE, Trouble, Verdict, broken

# A weight that no rounding of any profile hides: a NaN under it must show.
CLEARLY_SEEN: Final = 2.0**-6
OVERWRITES: Final = "a call overwrites what the call before it returned: copy what you keep"


class InMemory(Protocol):
    """Inputs that can lie in memory in several ways."""

    @property
    def dtype(self) -> str:
        """The format that the tensors are stored in."""
        ...

    @property
    def memory(self) -> str:
        """How they lie."""
        ...

    def but(self, **changes: Any) -> Any:
        """The same inputs with some fields changed."""
        ...


InputsT = TypeVar("InputsT", bound=InMemory)


def untouched(subject: BaseSubject[Any, Any, Any], inputs: Any, what: str = "the call") -> Verdict:
    """Whether a call left its operands, and the memory around them, as they were.

    That a call also leaves the results of earlier ones as they were is only remarked.
    """
    outcome = subject.call(inputs)
    if outcome.status != "returned":
        return INAPPLICABLE
    if not outcome.mutated:
        return replace(HELD, remarks=(OVERWRITES,)) if subject.overwrites else HELD
    text = f"{what} wrote to its {', '.join(outcome.mutated)}"
    return broken(Trouble(kind="input-mutation", text=text))


def changed_bits(one: Outcome, other: Outcome, *, kind: str, text: str) -> Trouble | None:
    """The trouble that ``one`` has other bits than ``other``; None where all are the same."""
    assert one.stored is not None
    assert other.stored is not None
    different = other_bits(one.stored, other.stored)
    if not different.any():
        return None
    index = tuple(int(i) for i in np.argwhere(different)[0])
    return Trouble(
        kind=kind,
        text=f"{text} at output{list(index)}",
        index=index,
        got=float(one.output[index]),
        expected=float(other.output[index]),
        outside=int(different.sum()),
        total=different.size,
    )


def repeats(subject: SubjectOf[Any, Any, Any, Any], inputs: Any) -> Verdict:
    """A second call: the same bits where that is declared, within both bounds elsewhere."""
    first = subject.call(inputs)
    if not subject.sound(inputs, first):
        return INAPPLICABLE
    second = subject.call_again(inputs)
    if (problem := subject.unusable(inputs, second)) is not None:
        return problem
    text = "a repeated call gives other bits"
    trouble = changed_bits(second, first, kind="not-repeatable", text=text)
    if trouble is None:
        return HELD
    if subject.declared.deterministic:
        return broken(trouble)
    verdict = subject.same(
        inputs,
        second.output,
        first.output,
        slack=subject.allowance(inputs).allowed,
        kind="not-repeatable",
        than="its own first answer to the same call",
    )
    return replace(verdict, remarks=(text,))


def pieces_repeat(subject: PiecewiseSubject, inputs: Any, *, text: str, than: str) -> Verdict:
    """:func:`repeats` for an output that is judged piece by piece."""
    first = subject.call(inputs)
    if not subject.sound(inputs, first):
        return INAPPLICABLE
    second = subject.call_again(inputs)
    if (problem := subject.unusable(inputs, second)) is not None:
        return problem
    trouble = changed_bits(second, first, kind="not-repeatable", text=text)
    if trouble is None:
        return HELD
    if subject.declared.deterministic:
        return broken(trouble)
    pairs = [(piece, piece) for piece in inputs.pieces]
    verdict = subject.same_pieces(pairs, second, first, kind="not-repeatable", than=than)
    return replace(verdict, remarks=(text,))


def as_contiguous(
    subject: SubjectOf[Any, Any, InputsT, Any],
    inputs: InputsT,
    *,
    kind: str,
    plain: InputsT | None = None,
) -> Verdict:
    """The same numbers in contiguous tensors give the same output, within both bounds.

    plain: those, where somebody may have asked for them already.
    """
    plain = inputs.but(memory="contiguous") if plain is None else plain
    strided, flat = subject.call(inputs), subject.call(plain)
    subject.alike(plain, inputs)
    if not subject.sound(plain, flat):
        return INAPPLICABLE
    if (problem := subject.unusable(inputs, strided)) is not None:
        return problem
    return subject.same(
        inputs,
        strided.output,
        flat.output,
        slack=subject.allowance(inputs).allowed,
        kind=kind,
        than=f"itself on contiguous tensors (memory is {inputs.memory!r})",
    )


def row_alone(subject: SubjectOf[Any, Any, Any, Any], inputs: Any, alone: Any, row: int) -> Verdict:
    """Batch row ``row`` by itself: its own bits where that is declared, else within both bounds."""
    whole, one = subject.call(inputs), subject.call(alone)
    if not subject.sound(inputs, whole):
        return INAPPLICABLE
    if (problem := subject.unusable(alone, one)) is not None:
        return problem
    part = slice(row, row + 1)
    if subject.declared.batch_invariant:
        assert whole.stored is not None
        in_batch = replace(whole, stored=whole.stored[part])
        text = f"batch row {row} alone gives other bits"
        trouble = changed_bits(one, in_batch, kind="batch-dependence", text=text)
        if trouble is not None:
            return broken(trouble)
    return subject.same(
        inputs,
        one.output,
        whole.output[part],
        slack=subject.allowance(inputs).allowed[part],
        at=part,
        kind="batch-dependence",
        than=f"batch row {row} of the whole batch",
    )


def refuses(subject: BaseSubject[Any, Any, Any], inputs: Any, *, text: str) -> Verdict:
    """A call that must not be answered; ``text`` says what was, if it is."""
    outcome = subject.call_again(inputs)
    if outcome.status in ("refused", "raised"):
        return HELD
    if outcome.status != "returned":
        return subject.unusable(inputs, outcome) or HELD
    if outcome.stored is None:
        return INAPPLICABLE  # nothing that could be taken for an answer
    return broken(Trouble(kind="answered-refusal", text=text))


def where_declared(verdict: Verdict, subject: BaseSubject[Any, Any, Any], where: str) -> Verdict:
    """Judge a leak of NaN where its absence is declared, and report it elsewhere.

    NaN in the output is the leak itself, not a number that went out of range.
    """
    if verdict.status in ("inapplicable", "refused"):
        return verdict
    if subject.declared.hidden_nan == "ignored":
        if verdict.trouble is not None and verdict.trouble.kind == "non-finite":
            return broken(replace(verdict.trouble, kind="nan-leak"))
        return verdict
    leaks = verdict.status == "broken"
    remark = f"NaN in {where} {'leaks' if leaks else 'is ignored'}"
    return Verdict(status="inapplicable", remarks=(remark,))


def what_rows_hold(numbers: Array) -> str:
    """What stands in rows that see nothing, in a word or two."""
    if not numbers.any():
        return "zeros"
    if np.isnan(numbers).all():
        return "NaN"
    return "finite numbers" if np.isfinite(numbers).all() else "NaN or infinity in places"
