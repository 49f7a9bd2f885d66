"""Laws of rotary embeddings about several calls: steps, growing contexts, rows, strides."""

from __future__ import annotations

import numpy as np

from equivalence.laws.alike import as_contiguous, repeats, row_alone, untouched
from equivalence.laws.law import law
from equivalence.rope.case import RotaryCase
from equivalence.rope.domain import RotaryDomain
from equivalence.rope.inputs import RotaryInputs
from equivalence.rope.scaling import SWITCHING
from equivalence.rope.subject import RotarySubject
from equivalence.verdict import INAPPLICABLE, Verdict


def take_tokens(inputs: RotaryInputs, index: np.ndarray) -> RotaryInputs:
    """Keep the tokens ``index``, with their positions."""
    return inputs.but(x=inputs.x[:, :, index], positions=inputs.positions[..., index])


def take_rows(inputs: RotaryInputs, index: np.ndarray) -> RotaryInputs:
    """Keep the batch rows ``index``, with their positions."""
    by_row = inputs.positions.ndim == 2
    positions = inputs.positions[index] if by_row else inputs.positions
    return inputs.but(x=inputs.x[index], positions=positions)


def _several_tokens(case: RotaryCase, domain: RotaryDomain) -> RotaryCase | None:
    """At least two tokens, the last of which has the largest position."""
    if domain.seq_len[0] > 1:
        return None
    changes: dict[str, object] = {}
    if case.seq_len < 2:
        changes["seq_len"] = 2
    if case.row_step:
        changes["row_step"] = 0
        changes["per_row"] = True
    if case.padding:
        changes["padding"] = 0
        changes["per_row"] = True
    changed = case.but(**changes) if changes else case
    return changed if changed.last_position <= domain.furthest else None


@law("query-and-key-use-one-table", kind="rotary", adapt=_several_tokens)
def query_and_key_use_one_table(case: RotaryCase, subject: RotarySubject) -> Verdict:
    """A token decoded alone is turned as it is inside its prefill."""
    inputs = subject.inputs(case)
    last = np.array([case.seq_len - 1])
    step = take_tokens(inputs, last)
    whole, one = subject.call(inputs), subject.call(step)
    if not subject.sound(inputs, whole):
        return INAPPLICABLE
    if (problem := subject.unusable(step, one)) is not None:
        return problem
    return subject.same(
        inputs,
        one.output,
        whole.output[:, :, last],
        slack=subject.allowance(inputs).allowed[:, :, last],
        at=np.s_[:, :, last],
        than="the same token inside its own prefill",
    )


@law("cached-keys-stay-valid", kind="rotary", adapt=_several_tokens)
def cached_keys_stay_valid(case: RotaryCase, subject: RotarySubject) -> Verdict:
    """Keys that were turned in a shorter context are turned alike in a longer one."""
    inputs = subject.inputs(case)
    kept = np.arange(case.seq_len - 1)
    early = take_tokens(inputs, kept)
    short, whole = subject.call(early), subject.call(inputs)
    if not subject.sound(inputs, whole):
        return INAPPLICABLE
    if (problem := subject.unusable(early, short)) is not None:
        return problem
    slack = subject.allowance(inputs).allowed[:, :, kept]
    scaling = inputs.scaling
    switching = scaling is not None and scaling.rope_type in SWITCHING
    verdict = subject.same(
        early if switching else inputs,  # else a part of it, whose bound is known
        short.output,
        whole.output[:, :, kept],
        slack=slack,
        at=... if switching else np.s_[:, :, kept],
        kind="disagreement",
        than="the same keys in a context that is one token longer",
    )
    if scaling is not None and switching:
        if not subject.sound(early, short):
            return INAPPLICABLE
        stale = verdict.status == "broken"
        fate = "go stale as the context grows" if stale else "stay valid here"
        return Verdict(
            status="inapplicable", remarks=(f"with {scaling.rope_type} scaling cached keys {fate}",)
        )
    return verdict


def _two_heads(case: RotaryCase, domain: RotaryDomain) -> RotaryCase | None:
    if case.num_heads >= 2:
        return case
    return case.but(num_heads=2) if domain.num_heads[1] >= 2 else None


@law("heads-are-turned-alike", kind="rotary", adapt=_two_heads)
def heads_are_turned_alike(case: RotaryCase, subject: RotarySubject) -> Verdict:
    """Heads that hold the same numbers come out the same."""
    plain = subject.inputs(case)
    alike = plain.but(x=np.broadcast_to(plain.x[:, :1], plain.x.shape).copy())
    if not subject.sound(plain, subject.call(plain)):
        return INAPPLICABLE
    outcome = subject.call(alike)
    if (problem := subject.unusable(alike, outcome)) is not None:
        return problem
    return subject.same(
        alike,
        outcome.output,
        np.broadcast_to(outcome.output[:, :1], outcome.output.shape),
        slack=subject.allowance(alike).allowed[:, :1],
        than="its own head 0, which holds the same numbers",
    )


@law("rotary-inputs-are-not-modified", kind="rotary")
def inputs_are_not_modified(case: RotaryCase, subject: RotarySubject) -> Verdict:
    """A call leaves the tensor, the memory around it and the positions as they were."""
    return untouched(subject, subject.inputs(case))


def _strided(case: RotaryCase, domain: RotaryDomain) -> RotaryCase | None:
    others = [memory for memory in domain.memories if memory != "contiguous"]
    if case.memory in others:
        return case
    return case.but(memory=others[case.seed % len(others)]) if others else None


@law("rotary-strides-do-not-matter", kind="rotary", adapt=_strided)
def strides_do_not_matter(case: RotaryCase, subject: RotarySubject) -> Verdict:
    """The same numbers behind other strides give the same output."""
    plain = subject.inputs(case.but(memory="contiguous"))  # which other laws have asked for
    return as_contiguous(subject, subject.inputs(case), kind="strides", plain=plain)


@law("rotary-repeats-itself", kind="rotary")
def repeats_itself(case: RotaryCase, subject: RotarySubject) -> Verdict:
    """A repeated call gives the same answer, bit for bit where the target declares it."""
    return repeats(subject, subject.inputs(case))


def _several_rows(case: RotaryCase, domain: RotaryDomain) -> RotaryCase | None:
    """At least two batch rows, at their own positions where that is taken."""
    if domain.batch_size[1] < 2:
        return None
    changes: dict[str, object] = {}
    if case.batch_size < 2:
        changes["batch_size"] = 2
    if domain.by_row and not (case.row_step or case.padding):
        changes["row_step"] = 1
        changes["per_row"] = False
    changed = case.but(**changes) if changes else case
    return changed if changed.last_position <= domain.furthest else None


@law("rotary-batch-rows-are-independent", kind="rotary", adapt=_several_rows)
def batch_rows_are_independent(case: RotaryCase, subject: RotarySubject) -> Verdict:
    """A batch row alone gives what it gives in its batch, bit for bit where declared."""
    inputs = subject.inputs(case)
    # The row that sets the length, so that scaling by length sees the same.
    rows = inputs.by_row
    row = case.batch_size - 1 if len(rows) == 1 else int(np.argmax(rows.max(axis=1)))
    return row_alone(subject, inputs, take_rows(inputs, np.array([row])), row)
