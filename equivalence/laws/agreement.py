"""Laws about values: the output is that of float64 attention, row by row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from equivalence.bounds import combination_error, in_domain, lse_allowance
from equivalence.case import AttentionCase
from equivalence.compare import compare
from equivalence.domain import Domain
from equivalence.dtypes import Array
from equivalence.inputs import AttentionInputs
from equivalence.laws.alike import what_rows_hold
from equivalence.laws.law import law
from equivalence.masks import Mask
from equivalence.mixture import CHUNK_ELEMENTS
from equivalence.subject import Subject
from equivalence.verdict import HELD, INAPPLICABLE, Trouble, Verdict, broken


@law("agrees-with-float64")
def agrees_with_float64(case: AttentionCase, subject: Subject) -> Verdict:
    """Every output element is within the derived error bound of float64 attention."""
    inputs = subject.inputs(case)
    return subject.judge(inputs, subject.call(inputs))


@law("within-hull")
def within_hull(case: AttentionCase, subject: Subject) -> Verdict:
    """Every output lies between the smallest and the largest value that its query sees."""
    inputs = subject.inputs(case)
    outcome = subject.call(inputs)
    if not subject.sound(inputs, outcome):
        return INAPPLICABLE
    exact = subject.exact(inputs)
    low, high = _hull(inputs, exact.visible)
    actual = outcome.output
    slack = combination_error(inputs, exact, subject.profile(inputs.dtype))
    nearest = np.clip(actual, low, high)
    limits = replace(subject.allowance(inputs), allowed=slack)
    nearest = np.where(np.isfinite(actual), nearest, exact.output)
    facts = compare(actual, nearest, limits, dtype=inputs.dtype, rows=exact.seen > 0)
    return subject.verdict(
        facts, inputs, kind="outside-bound", than="the hull of the visible values"
    )


def _hull(inputs: AttentionInputs, visible: Array) -> tuple[Array, Array]:
    """Smallest and largest visible value of each output element, a few heads at a time."""
    shape = (*visible.shape[:3], inputs.value.shape[-1])
    low, high = np.empty(shape), np.empty(shape)
    by_key = np.ascontiguousarray(inputs.value.swapaxes(-1, -2))  # numpy reduces a last axis best
    step = max(1, CHUNK_ELEMENTS * shape[1] // max(1, low.size * visible.shape[3]))
    for start in range(0, shape[1], step):
        part = slice(start, start + step)
        seen = visible[:, part, :, None, :]
        value = by_key[:, inputs.kv_head_of[part], None]
        low[:, part] = np.where(seen, value, np.inf).min(axis=-1, initial=np.inf)
        high[:, part] = np.where(seen, value, -np.inf).max(axis=-1, initial=-np.inf)
    if inputs.sinks is not None:  # the sink is a key whose value is zero
        low, high = np.minimum(low, 0.0), np.maximum(high, 0.0)
    return low, high


def _with_empty_rows(case: AttentionCase, domain: Domain) -> AttentionCase | None:
    """The same case with at least one row that sees no key, made the way the domain allows.

    Without sinks: a sink alone makes the row well defined, and zero.
    """
    if not domain.empty_rows:
        return None
    if case.sinks:
        case = case.but(sinks=False)
    mask = case.mask
    if mask is not None and "q" in mask.axes:
        if mask.hidden != "-inf":
            return None
        return case.but(mask=replace(mask, empty_rows=max(1, mask.empty_rows)))
    if case.kv_lengths is not None and 0 in case.kv_lengths:
        return case
    if case.causal == "lower_right" and case.q_len > case.kv_len:
        return case
    plain = case.causal is None or domain.mask_and_causal
    if mask is None and plain and domain.masks and "q" in domain.mask_axes:
        form = domain.masks[case.seed % len(domain.masks)]
        return case.but(mask=Mask(form=form, empty_rows=1))
    return None


@law("masked-rows", adapt=_with_empty_rows)
def masked_rows(case: AttentionCase, subject: Subject) -> Verdict:
    """A row that sees no key holds what the target declares: zeros, NaN, the mean, or a number."""
    inputs = subject.inputs(case)
    outcome = subject.call(inputs)
    if subject.unusable(inputs, outcome) is not None:
        return INAPPLICABLE
    exact = subject.exact(inputs)
    # An infinite score under a mask of -inf is NaN: that is a matter of range and not of masks.
    asked = (exact.seen == 0) & in_domain(inputs, exact, subject.profile(inputs.dtype))
    empty = np.broadcast_to(asked[..., None], outcome.output.shape)
    if not empty.any():
        return INAPPLICABLE
    actual = outcome.output
    policy = subject.declared.masked_rows
    if policy is None:
        return Verdict(
            status="inapplicable",
            remarks=(f"rows that see no key hold {what_rows_hold(actual[empty])}",),
        )
    if inputs.sinks is not None:
        policy = "zeros"  # not a matter of policy: the sink takes the whole row and has no value
    mean = inputs.value.mean(axis=2, keepdims=True)[:, inputs.kv_head_of]
    slack = np.broadcast_to(
        combination_error(inputs, exact, subject.profile(inputs.dtype), seen=case.kv_len),
        actual.shape,
    )
    with np.errstate(invalid="ignore"):
        away = ~(np.abs(actual - mean) <= slack)
    wrong = {
        "zeros": actual != 0,
        "nan": ~np.isnan(actual),
        "finite": ~np.isfinite(actual),
        "uniform": away,
        "uniform_or_nan": _by_way(inputs, away, ~np.isnan(actual)),
    }[policy]
    wrong = wrong & empty
    if not wrong.any():
        return HELD
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    return broken(
        Trouble(
            kind="masked-rows",
            text=(
                f"a row that sees no key holds {what_rows_hold(actual[wrong])} "
                f"at output{list(index)}, declared {policy}"
            ),
            index=index,
            got=float(actual[index]),
            outside=int(wrong.sum()),
            total=int(empty.sum()),
        )
    )


def _by_way(inputs: AttentionInputs, not_mean: Array, not_nan: Array) -> Array:
    """What is wrong where rows hidden by -inf are NaN and all others the mean of the values.

    A row that is hidden in both ways at once may hold either, and is not judged.
    """
    shape = (*inputs.query.shape[:3], inputs.key.shape[2])
    mask = inputs.mask
    infinite = np.zeros(shape, bool)
    if mask is not None and mask.dtype != bool:
        infinite = np.broadcast_to(mask == -np.inf, shape)
    otherwise_seen = np.broadcast_to(inputs.but(mask=None).visible, shape).all(axis=-1)
    nan: Array = np.asarray(infinite.all(axis=-1) & otherwise_seen)[..., None]
    mean: Array = np.asarray(~infinite.any(axis=-1))[..., None]
    return (nan & not_nan) | (mean & not_mean)


@law("log-sum-exp")
def log_sum_exp(case: AttentionCase, subject: Subject) -> Verdict:
    """The second result is the log-sum-exp of the scores, and -inf where a row sees no key."""
    base = subject.declared.lse
    inputs = subject.inputs(case)
    if base is None or inputs.sinks is not None:
        return INAPPLICABLE
    outcome = subject.call(inputs)
    if not subject.sound(inputs, outcome):
        return INAPPLICABLE
    exact = subject.exact(inputs)
    if outcome.lse is None or outcome.lse.shape != exact.lse.shape:
        shape = "nothing" if outcome.lse is None else list(outcome.lse.shape)
        text = f"the declared log-sum-exp has shape {shape}, expected {list(exact.lse.shape)}"
        return broken(Trouble(kind="wrong-shape", text=text))
    unit = np.log(2.0) if base == "base2" else 1.0
    expected = exact.lse / unit
    allowed = lse_allowance(inputs, exact, subject.profile(inputs.dtype)) / unit
    empty = exact.seen == 0
    with np.errstate(invalid="ignore"):
        error = np.abs(outcome.lse - expected)
        used = np.where(empty, np.where(outcome.lse == -np.inf, 0.0, np.inf), error / allowed)
    used = np.where(np.isnan(used), np.inf, used)
    used = np.where(subject.allowance(inputs).in_domain, used, 0.0)
    worst = float(used.max(initial=0.0))
    if worst <= 1:
        return Verdict(status="held", used=worst)
    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(used)), used.shape))
    what = " of a row that sees no key" if empty[index] else ""
    return broken(
        Trouble(
            kind="lse",
            text=f"the log-sum-exp{what} is wrong at lse{list(index)}",
            index=index,
            got=float(outcome.lse[index]),
            expected=float(expected[index]),
            error=None if empty[index] else float(error[index]),
            allowed=None if empty[index] else float(allowed[index]),
            used=worst,
            outside=int((used > 1).sum()),
            total=used.size,
        )
    )
