"""Laws of converters: what comes out computes what went in, whatever its shapes and options."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from equivalence.converters.case import ConverterCase
from equivalence.converters.domain import ConverterDomain
from equivalence.converters.inputs import asked_inputs
from equivalence.converters.subject import ConverterSubject
from equivalence.converters.weighed import ALIKE
from equivalence.converters.without import dropped_options
from equivalence.laws.law import law
from equivalence.profiles import PROFILES
from equivalence.verdict import HELD, INAPPLICABLE, Trouble, Verdict, broken

# What each formulation is compared with: another one of the same contract.
OTHER: Final = {
    "repeat_kv": "broadcast",
    "repeat_interleave": "repeat_kv",
    "q_fold_decode": "repeat_kv",
    "q_fold_prefill": "repeat_kv",
    "q_fold_wide_mask": "q_fold_prefill",
    "broadcast": "einsum",
    "einsum": "repeat_kv",
    "sdpa": "repeat_kv",
    "sdpa_repeat_kv": "sdpa_fold",
    "sdpa_gqa": "sdpa_repeat_kv",
    "sdpa_fold": "sdpa_repeat_kv",
    "mla_expanded": "mla_absorbed",
    "mla_absorbed": "mla_expanded",
    "cache_slice": "cache_one_hot",
    "cache_one_hot": "cache_read_only",
    "cache_indexed": "cache_one_hot",
}


def _at_its_own_shape(case: ConverterCase, domain: ConverterDomain) -> ConverterCase | None:
    return None if case.about.keeps_states or _moved(case) else case


def _moved(case: ConverterCase) -> bool:
    """Whether it is called with another length than it was converted with."""
    return case.example_len not in (None, case.kv_len)


@law("converted-agrees", kind="converter", adapt=_at_its_own_shape)
def converted_agrees(case: ConverterCase, subject: ConverterSubject) -> Verdict:
    """A converted module computes what its source means, within the bound of its profile."""
    return subject.judge(case, subject.outcome(case))


def _at_another_shape(case: ConverterCase, domain: ConverterDomain) -> ConverterCase | None:
    return case if _moved(case) else None


@law("other-lengths-agree", kind="converter", adapt=_at_another_shape)
def other_lengths_agree(case: ConverterCase, subject: ConverterSubject) -> Verdict:
    """A module that was converted with a flexible length agrees at lengths that it was not."""
    return subject.judge(case, subject.outcome(case))


def _with_states(case: ConverterCase, domain: ConverterDomain) -> ConverterCase | None:
    if not case.about.keeps_states:
        return None
    return case if case.kv_len > 1 else case.but(kv_len=2)


@law("state-writes-land", kind="converter", adapt=_with_states)
def state_writes_land(case: ConverterCase, subject: ConverterSubject) -> Verdict:
    """Every token that a stateful module was given is seen by the calls after it."""
    outcome = subject.outcome(case)
    verdict = subject.judge(case, outcome)
    trouble = verdict.trouble
    if trouble is None or trouble.kind not in ("outside-bound", "non-finite"):
        return verdict
    text = f"after {case.kv_len} tokens: {trouble.text}"
    return broken(_but(trouble, kind="positions", text=text))


def _with_empty_rows(case: ConverterCase, domain: ConverterDomain) -> ConverterCase | None:
    mask = case.mask
    if not domain.empty_rows or mask is None or case.compression is not None:
        return None
    if mask.hidden != "-inf" or "q" not in mask.axes:
        return None
    return case if mask.empty_rows else case.but(mask=_mask(mask, empty_rows=1))


@law("empty-rows-as-in-source", kind="converter", adapt=_with_empty_rows)
def empty_rows_as_in_source(case: ConverterCase, subject: ConverterSubject) -> Verdict:
    """A row that sees no key holds what it holds in the source: zeros, NaN, or a number."""
    outcome = subject.outcome(case)
    judge, asked = subject.judge_of(case), asked_inputs(case)
    if outcome.status == "refused":
        return Verdict(status="refused", reason=outcome.text)
    if judge.unusable(asked, outcome) is not None:
        return INAPPLICABLE
    empty = np.broadcast_to((judge.exact(asked).seen == 0)[..., None], outcome.output.shape)
    if not empty.any():
        return INAPPLICABLE
    source, actual = subject.source(case), outcome.output
    with np.errstate(invalid="ignore"):
        same = (np.isnan(source) & np.isnan(actual)) | (source == actual)
    wrong = empty & ~same
    if not wrong.any():
        return HELD
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    text = (
        f"a row that sees no key holds {_number(actual[index])} at output{list(index)}, "
        f"and {_number(source[index])} in the source"
    )
    return broken(
        Trouble(
            kind="masked-rows",
            text=text,
            index=index,
            got=float(actual[index]),
            expected=float(source[index]),
            outside=int(wrong.sum()),
            total=int(empty.sum()),
        )
    )


def _number(value: Any) -> str:
    return "NaN" if np.isnan(value) else f"{float(value):.6g}"


def _without_states(case: ConverterCase, domain: ConverterDomain) -> ConverterCase | None:
    return None if case.about.keeps_states else case


@law("nothing-is-dropped", kind="converter", adapt=_without_states)
def nothing_is_dropped(case: ConverterCase, subject: ConverterSubject) -> Verdict:
    """The output is not that of the same module without its mask, order in time, or scaling."""
    variants = dropped_options(case)
    if not variants:
        return INAPPLICABLE
    outcome = subject.outcome(case)
    if outcome.status == "refused":
        return Verdict(status="refused", reason=outcome.text)
    asked, judge = asked_inputs(case), subject.judge_of(case)
    if judge.unusable(asked, outcome) is not None:
        return INAPPLICABLE
    if judge.judge(asked, outcome).status in ("held", "vacuous"):
        return HELD if _tells_apart(judge, asked, variants) else INAPPLICABLE
    for what, other in variants.items():
        if judge.judge(other, outcome).status == "held":
            text = f"the output is that of the same call without its {what}"
            return broken(Trouble(kind="ignored-option", text=text))
    return INAPPLICABLE  # what is wrong otherwise is for other laws to say


def _tells_apart(judge: Any, asked: Any, variants: Any) -> bool:
    """Whether each variant differs from what is asked by more than both bounds together."""
    own, allowed = judge.exact(asked), judge.allowance(asked).allowed
    seen = (own.seen > 0)[..., None]
    for other in variants.values():
        apart = np.abs(own.output - judge.exact(other).output)
        if not (seen & (apart > allowed + judge.allowance(other).allowed)).any():
            return False
    return True


def _with_another(case: ConverterCase, domain: ConverterDomain) -> ConverterCase | None:
    other = OTHER.get(case.formulation)
    # A second conversion costs as much as the first: one drawn case in four pays for it.
    if other is None or other not in domain.formulations or case.seed % 4:
        return None
    # What else two forms of latent attention hold are other numbers: each has its own reference.
    return case if case.about.family != "mla" or case.compression in ALIKE else None


@law("formulations-agree", kind="converter", adapt=_with_another)
def formulations_agree(case: ConverterCase, subject: ConverterSubject) -> Verdict:
    """Two ways of writing the same attention agree after conversion, within both bounds."""
    try:
        other = case.but(formulation=OTHER[case.formulation])
    except ValueError:
        return INAPPLICABLE
    first = subject.outcome(case)
    if first.status == "refused":
        return Verdict(status="refused", reason=first.text)
    if not subject.sound(case) or not subject.sound(other):
        return INAPPLICABLE
    second = subject.outcome(other)
    judge, asked = subject.judge_of(case), asked_inputs(case)
    slack = judge.allowance(asked_inputs(other)).allowed
    verdict: Verdict = judge.same(
        asked, first.output, second.output, slack=slack, than=f"{other.formulation}, converted"
    )
    return verdict


def _to_the_bit(case: ConverterCase, domain: ConverterDomain) -> ConverterCase | None:
    """A pair whose scale every format stores, so that nothing but order can differ."""
    if not domain.exact or case.about.family == "rotary":
        return None
    # What a caller keeps of a layer is rounded to the type of its inputs, and a state is not.
    if case.formulation == "cache_read_only":
        return None
    pair = _with_another(case, domain)
    if pair is None or case.about.family != "mla":
        return pair and pair.but(head_dim=4 if case.head_dim < 8 else 16, scale=None)
    width = 2 if case.head_dim < 8 else 8  # of the content and of the rotary part
    return pair.but(head_dim=width, rope_dim=width, scale=None)


def _alike(formulation: str) -> str:
    """What ends in the same bits: two ways of writing a state, not a state and an input."""
    return "cache_slice" if formulation == "cache_one_hot" else OTHER[formulation]


@law("formulations-agree-to-the-bit", kind="converter", adapt=_to_the_bit)
def formulations_agree_to_the_bit(case: ConverterCase, subject: ConverterSubject) -> Verdict:
    """Where graphs are evaluated in float64, two ways of writing attention give the same bits."""
    try:
        other = case.but(formulation=_alike(case.formulation))
    except ValueError:
        return INAPPLICABLE
    first, second = subject.outcome(case), subject.outcome(other)
    if first.status == "refused":
        return Verdict(status="refused", reason=first.text)
    if not subject.sound(case) or not subject.sound(other):
        return INAPPLICABLE
    judge, asked = subject.judge_of(case), asked_inputs(case)
    wrong = (first.output != second.output) & judge.defined_rows(asked)[..., None]
    if wrong.any():
        a, b = first.output, second.output
        unsure = judge.bound(asked.but(dtype="float64"), judge.exact(asked), PROFILES["f64"])
        number = np.dtype(case.dtype)
        # The exact output may lie between two numbers, closer to the middle than float64 can tell.
        neighbours = np.nextafter(a.astype(number), b.astype(number)) == b
        middle = np.abs(judge.exact(asked).output - (a + b) / 2) <= unsure.allowed
        wrong &= ~(neighbours & middle)
    if not wrong.any():
        return HELD
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    text = f"other bits than {other.formulation} at output{list(index)}, evaluated in float64"
    return broken(
        Trouble(
            kind="disagreement", text=text, index=index, got=float(first.output[index]),
            expected=float(second.output[index]), outside=int(wrong.sum()), total=wrong.size,
        )
    )  # fmt: skip


@law("calls-leave-no-trace", kind="converter")
def calls_leave_no_trace(case: ConverterCase, subject: ConverterSubject) -> Verdict:
    """Calling a converted module with other numbers, then resetting it, changes no later bit."""
    first = subject.outcome(case)
    if first.status == "refused":
        return Verdict(status="refused", reason=first.text)
    if first.stored is None:
        return INAPPLICABLE
    if first.mutated:
        text = f"the call wrote to {', '.join(first.mutated)}"
        return broken(Trouble(kind="input-mutation", text=text))
    again = subject.outcome_again(case)
    if again.stored is not None and first.stored.tobytes() == again.stored.tobytes():
        return HELD
    text = "the same call gives other bits after one with other numbers"
    return broken(Trouble(kind="not-repeatable", text=text))


def _mask(mask: Any, **changes: Any) -> Any:
    from dataclasses import replace

    return replace(mask, **changes)


def _but(trouble: Trouble, **changes: Any) -> Trouble:
    from dataclasses import replace

    return replace(trouble, **changes)
