"""Laws of latent attention about time: absorbed or expanded, every step gives the full sequence."""

from __future__ import annotations

import numpy as np

from equivalence.latent.case import MlaCase
from equivalence.latent.domain import MlaDomain
from equivalence.latent.inputs import LatentInputs
from equivalence.latent.subject import MlaSubject
from equivalence.latent.transforms import refill_tokens, take_queries, take_tokens
from equivalence.laws.law import law
from equivalence.laws.mla import later_tokens
from equivalence.verdict import INAPPLICABLE, Verdict

MOST_STEPS = 8


def _any_lengths(case: MlaCase, domain: MlaDomain) -> MlaCase | None:
    """A prefill of two tokens or more, over at least its own tokens, of free lengths."""
    if domain.q_lens is not None or domain.kv_lens is not None:
        return None
    return later_tokens(case, domain)


def _full_sequence(case: MlaCase, domain: MlaDomain) -> MlaCase | None:
    """As many queries as tokens, at least two and at most ``MOST_STEPS``."""
    if domain.q_lens is not None or domain.kv_lens is not None:
        return None
    length = max(2, min(case.kv_len, MOST_STEPS))
    return case.but(q_len=length, kv_len=length)


@law("mla-causality", kind="mla", adapt=later_tokens)
def causality(case: MlaCase, subject: MlaSubject) -> Verdict:
    """A later token never changes an earlier output."""
    inputs = subject.inputs(case)
    row = max(case.q_len // 2 - 1, 0)
    last_seen = row + case.kv_len - case.q_len
    outcome = subject.call(inputs)
    if not subject.sound(inputs, outcome):
        return INAPPLICABLE
    later = np.arange(case.kv_len) > last_seen
    changed = refill_tokens(inputs, later, seed=case.seed)
    second = subject.call(changed)
    if (problem := subject.unusable(changed, second)) is not None:
        return problem
    rows = np.zeros(subject.exact(inputs).seen.shape, bool)
    rows[:, :, : row + 1] = True
    allowed = subject.allowance(inputs)
    # Refilled tokens may overflow where the old ones did not; their rows are not the question.
    inside = allowed.in_domain & subject.allowance(changed).in_domain
    return subject.same(
        inputs,
        second.output,
        outcome.output,
        slack=allowed.allowed,
        rows=rows & inside,
        kind="future-keys",
        than=f"itself after tokens past {last_seen} changed",
    )


@law("mla-steps-equal-full-causal", kind="mla", adapt=_full_sequence)
def steps_equal_full_causal(case: MlaCase, subject: MlaSubject) -> Verdict:
    """At every position, a decode step over the cache gives the row of the full causal sequence."""
    inputs = subject.inputs(case)
    steps = [
        (take_tokens(take_queries(inputs, np.array([t])), np.arange(t + 1)), slice(t, t + 1))
        for t in range(case.q_len)
    ]
    return _parts_equal_whole(inputs, steps, subject)


@law("mla-decode-equals-prefill", kind="mla", adapt=_any_lengths)
def decode_equals_prefill(case: MlaCase, subject: MlaSubject) -> Verdict:
    """A decode step gives the last row of the prefill."""
    inputs = subject.inputs(case)
    step = take_queries(inputs, np.array([case.q_len - 1]))
    return _parts_equal_whole(inputs, [(step, slice(case.q_len - 1, case.q_len))], subject)


@law("mla-chunks-equal-prefill", kind="mla", adapt=_any_lengths)
def chunks_equal_prefill(case: MlaCase, subject: MlaSubject) -> Verdict:
    """Prefilling in two chunks gives the rows of the whole prefill."""
    inputs = subject.inputs(case)
    cut = 1 + case.seed % (case.q_len - 1)
    before = case.kv_len - case.q_len
    first = take_tokens(take_queries(inputs, np.arange(cut)), np.arange(before + cut))
    second = take_queries(inputs, np.arange(cut, case.q_len))
    parts = [(first, slice(0, cut)), (second, slice(cut, case.q_len))]
    return _parts_equal_whole(inputs, parts, subject)


def _parts_equal_whole(
    inputs: LatentInputs, parts: list[tuple[LatentInputs, slice]], subject: MlaSubject
) -> Verdict:
    whole = subject.call(inputs)
    if not subject.sound(inputs, whole):
        return INAPPLICABLE
    allowed = subject.allowance(inputs)
    worst = Verdict(status="vacuous")
    for part, rows in parts:
        own = np.s_[:, :, rows]
        outcome = subject.call(part)
        if (problem := subject.unusable(part, outcome)) is not None:
            return problem
        verdict = subject.same(
            inputs,
            outcome.output,
            whole.output[own],
            slack=allowed.allowed[own],
            at=own,
            than=f"rows {rows.start} to {rows.stop - 1} of its own full sequence",
        )
        if verdict.status == "broken":
            return verdict
        first_held = worst.status == "vacuous" and verdict.status == "held"
        if first_held or verdict.used > worst.used:
            worst = verdict
    return worst
