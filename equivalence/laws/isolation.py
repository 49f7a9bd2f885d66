"""Laws about what must not be read (hidden keys, other rows) and what must be (visible NaN)."""

from __future__ import annotations

import numpy as np

from equivalence.case import AttentionCase
from equivalence.domain import Domain
from equivalence.inputs import AttentionInputs
from equivalence.laws.alike import CLEARLY_SEEN, row_alone, where_declared
from equivalence.laws.law import law
from equivalence.masks import Mask
from equivalence.subject import Subject
from equivalence.transforms import refill_slots, take_batch, unread_slots
from equivalence.verdict import HELD, INAPPLICABLE, Trouble, Verdict, broken


def _something_hidden(case: AttentionCase, domain: Domain) -> AttentionCase | None:
    """The same case with keys that no query sees, made the way the domain allows."""
    inputs_hide = (
        (case.mask is not None and case.mask.pattern in ("padding", "random", "window"))
        or case.kv_lengths is not None
        or case.window is not None
        or (case.causal == "upper_left" and case.q_len < case.kv_len)
    )
    if inputs_hide:
        return case
    if case.kv_len < 2:
        return None
    kept = max(1, case.kv_len // 2)
    if domain.kv_lengths:
        return case.but(kv_lengths=tuple(max(1, kept - b) for b in range(case.batch_size)))
    if domain.masks and (case.causal is None or domain.mask_and_causal) and case.mask is None:
        axes = "" if "" in domain.mask_axes else domain.mask_axes[0]
        form = domain.masks[case.seed % len(domain.masks)]
        return case.but(mask=Mask(pattern="padding", form=form, axes=axes, size=kept))
    return None


@law("hidden-keys-do-not-matter", adapt=_something_hidden)
def hidden_keys_do_not_matter(case: AttentionCase, subject: Subject) -> Verdict:
    """What lies in a key or value slot that no query sees changes nothing."""
    inputs = subject.inputs(case)
    slots = unread_slots(inputs, subject.exact(inputs).visible)
    if not slots.any() or inputs.memory == "expanded":
        return INAPPLICABLE
    outcome = subject.call(inputs)
    if not subject.sound(inputs, outcome):
        return INAPPLICABLE
    changed = refill_slots(inputs, slots, seed=case.seed)
    second = subject.call(changed)
    if (problem := subject.unusable(changed, second)) is not None:
        return problem
    return subject.same(
        inputs,
        second.output,
        outcome.output,
        slack=subject.allowance(inputs).allowed,
        kind="hidden-keys",
        than="itself after hidden keys and values changed",
    )


@law("hidden-nan-is-ignored", adapt=_something_hidden)
def hidden_nan_is_ignored(case: AttentionCase, subject: Subject) -> Verdict:
    """NaN in a key or value slot that no query sees never reaches an output, where declared."""
    inputs = subject.inputs(case)
    slots = unread_slots(inputs, subject.exact(inputs).visible)
    if not slots.any() or inputs.memory == "expanded":
        return INAPPLICABLE
    outcome = subject.call(inputs)
    if not subject.sound(inputs, outcome):
        return INAPPLICABLE
    poisoned = refill_slots(inputs, slots, seed=case.seed, number=float("nan"))
    second = subject.call(poisoned)
    if (problem := subject.unusable(poisoned, second)) is not None:
        return problem
    verdict = subject.same(
        inputs,
        second.output,
        outcome.output,
        slack=subject.allowance(inputs).allowed,
        kind="nan-leak",
        than="itself after hidden keys and values became NaN",
    )
    return where_declared(verdict, subject, "hidden slots")


def _telling(case: AttentionCase, domain: Domain) -> AttentionCase | None:
    """The same case with values that tell slots apart: a wrong head is not a laundered NaN."""
    return case.but(values="steps") if case.values in ("zero", "ramp") else case


@law("visible-nan-is-kept", adapt=_telling)
def visible_nan_is_kept(case: AttentionCase, subject: Subject) -> Verdict:
    """NaN in a slot that a query sees reaches every row that clearly sees it."""
    inputs = subject.inputs(case)
    exact = subject.exact(inputs)
    if inputs.memory == "expanded" or not case.kv_len:
        return INAPPLICABLE
    outcome = subject.call(inputs)
    if not subject.sound(inputs, outcome):
        return INAPPLICABLE
    clearly = exact.probabilities > CLEARLY_SEEN
    if not clearly.any():
        return INAPPLICABLE
    candidates = np.argwhere(clearly)
    batch, head, query, key = candidates[case.seed % len(candidates)]
    kv_head = int(inputs.kv_head_of[head])
    operand = ("value", "key", "query")[case.seed % 3]
    rows = np.zeros(exact.seen.shape, bool)
    poisoned: AttentionInputs
    if operand == "query":
        changed = inputs.query.copy()
        changed[batch, head, query] = np.nan
        poisoned = inputs.but(query=changed)
        rows[batch, head, query] = True
    else:
        changed = getattr(inputs, operand).copy()
        changed[batch, kv_head, key] = np.nan
        poisoned = inputs.but(**{operand: changed})
        rows[batch] = clearly[batch, :, :, key] & (inputs.kv_head_of == kv_head)[:, None]
    second = subject.call(poisoned)
    if (problem := subject.unusable(poisoned, second)) is not None:
        return problem
    laundered = rows[..., None] & ~np.isnan(second.output)
    if not laundered.any():
        return HELD
    index = tuple(int(i) for i in np.argwhere(laundered)[0])
    return broken(
        Trouble(
            kind="nan-laundered",
            text=f"NaN in {operand} became a number at output{list(index)}",
            index=index,
            got=float(second.output[index]),
            expected=float("nan"),
            outside=int(laundered.sum()),
            total=int(rows.sum()) * case.v_dim,
        )
    )


def _several_rows(case: AttentionCase, domain: Domain) -> AttentionCase | None:
    """The same case with at least two batch rows."""
    if case.batch_size >= 2:
        return case
    if domain.batch_size[1] < 2:
        return None
    lengths = case.kv_lengths
    if lengths is not None:
        return case.but(batch_size=2, kv_lengths=(lengths[0], max(1, lengths[0] // 2)))
    return case.but(batch_size=2)


@law("batch-rows-are-independent", adapt=_several_rows)
def batch_rows_are_independent(case: AttentionCase, subject: Subject) -> Verdict:
    """A batch row alone gives what it gives in its batch, bit for bit where declared."""
    inputs = subject.inputs(case)
    row = case.seed % case.batch_size
    return row_alone(subject, inputs, take_batch(inputs, np.array([row])), row)
