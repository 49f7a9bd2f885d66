"""Laws about order in time: what comes later never matters, and steps add up to the whole."""

from __future__ import annotations

import numpy as np

from equivalence.case import AttentionCase
from equivalence.domain import Domain
from equivalence.laws.alike import repeats
from equivalence.laws.law import law
from equivalence.subject import Subject
from equivalence.transforms import refill_slots, take_keys, take_queries
from equivalence.verdict import INAPPLICABLE, Verdict


def _causal(case: AttentionCase, domain: Domain) -> AttentionCase | None:
    """The same case with a causal mask and at least two queries and two keys."""
    corners = [corner for corner in domain.causal if corner is not None]
    if not corners or case.kv_lengths is not None:
        return None
    changes: dict[str, object] = {}
    if case.causal is None:
        changes["causal"] = corners[0]
        if not domain.mask_and_causal:
            changes["mask"] = None
    if case.kv_len < 2:
        longer = [n for n in domain.kv_lens or (2,) if n >= 2]
        changes["kv_len"] = longer[0] if longer else case.kv_len
    if case.q_len < 2:
        longer = [n for n in domain.q_lens or range(2, domain.q_len[1] + 1) if n >= 2]
        if not longer:
            return None
        changes["q_len"] = longer[0]
    found = case.but(**changes) if changes else case
    return found if found.kv_len >= 2 else None


def _lower_right(case: AttentionCase, domain: Domain) -> AttentionCase | None:
    """A causal prefill over exactly its own keys, at least two of them, lower-right."""
    found = _causal(case, domain)
    if found is None or found.causal != "lower_right":
        return None
    if domain.q_lens is not None or domain.kv_lens is not None:
        return None  # a step needs lengths that the target does not take
    # Half of the prefills start from nothing: a fault of later chunks leaves those intact.
    square = found.kv_len < found.q_len or found.seed % 2 == 1
    return found.but(kv_len=found.q_len) if square else found


@law("causality", adapt=_causal)
def causality(case: AttentionCase, subject: Subject) -> Verdict:
    """A later key or value never changes an earlier output."""
    inputs = subject.inputs(case)
    offset = case.kv_len - case.q_len if case.causal == "lower_right" else 0
    row = max(case.q_len // 2 - 1, min(0, -offset))
    last_seen = row + offset
    if not 0 <= last_seen < case.kv_len - 1:
        row = max(0, -offset)
        last_seen = row + offset
    if row >= case.q_len or not 0 <= last_seen < case.kv_len - 1:
        return INAPPLICABLE
    outcome = subject.call(inputs)
    if not subject.sound(inputs, outcome):
        return INAPPLICABLE
    later = np.zeros((case.batch_size, case.num_kv_heads, case.kv_len), bool)
    later[:, :, last_seen + 1 :] = True
    changed = refill_slots(inputs, later, seed=case.seed)
    second = subject.call(changed)
    if (problem := subject.unusable(changed, second)) is not None:
        return problem
    rows = np.zeros((case.batch_size, case.num_heads, case.q_len), bool)
    rows[:, :, : row + 1] = True
    return subject.same(
        inputs,
        second.output,
        outcome.output,
        slack=subject.allowance(inputs).allowed,
        rows=rows & subject.allowance(inputs).in_domain,
        kind="future-keys",
        than=f"itself after keys past {last_seen} changed",
    )


@law("decode-equals-prefill", adapt=_lower_right)
def decode_equals_prefill(case: AttentionCase, subject: Subject) -> Verdict:
    """A decode step gives the last row of the prefill."""
    inputs = subject.inputs(case)
    step = take_queries(inputs, np.array([case.q_len - 1]))
    whole, one = subject.call(inputs), subject.call(step)
    if not subject.sound(inputs, whole):
        return INAPPLICABLE
    if (problem := subject.unusable(step, one)) is not None:
        return problem
    last = np.s_[:, :, -1:]
    return subject.same(
        inputs,
        one.output,
        whole.output[last],
        slack=subject.allowance(inputs).allowed[last],
        at=last,
        than="the last row of its own prefill",
    )


@law("chunks-equal-prefill", adapt=_lower_right)
def chunks_equal_prefill(case: AttentionCase, subject: Subject) -> Verdict:
    """Prefilling in two chunks gives the rows of the whole prefill."""
    inputs = subject.inputs(case)
    cut = 1 + case.seed % (case.q_len - 1)
    whole = subject.call(inputs)
    if not subject.sound(inputs, whole):
        return INAPPLICABLE
    allowed = subject.allowance(inputs).allowed
    first = take_keys(
        take_queries(inputs, np.arange(cut)), np.arange(case.kv_len - case.q_len + cut)
    )
    second = take_queries(inputs, np.arange(cut, case.q_len))
    worst = Verdict(status="vacuous")
    for chunk, rows in ((first, slice(0, cut)), (second, slice(cut, case.q_len))):
        own = np.s_[:, :, rows]
        part = subject.call(chunk)
        if (problem := subject.unusable(chunk, part)) is not None:
            return problem
        verdict = subject.same(
            inputs,
            part.output,
            whole.output[own],
            slack=allowed[own],
            at=own,
            than=f"rows {rows.start} to {rows.stop - 1} of its own prefill",
        )
        if verdict.status == "broken":
            return verdict
        first_held = worst.status == "vacuous" and verdict.status == "held"
        if first_held or verdict.used > worst.used:
            worst = verdict
    return worst


@law("repeats-itself")
def repeats_itself(case: AttentionCase, subject: Subject) -> Verdict:
    """A repeated call gives the same answer, bit for bit where the target declares it."""
    return repeats(subject, subject.inputs(case))
