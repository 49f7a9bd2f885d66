"""Laws of symmetry: permuted keys, permuted heads, and linearity in the values."""

from __future__ import annotations

import numpy as np

from equivalence.case import AttentionCase
from equivalence.domain import Domain
from equivalence.dtypes import Array
from equivalence.inputs import AttentionInputs
from equivalence.laws.law import law
from equivalence.subject import Subject
from equivalence.transforms import take_heads, take_keys
from equivalence.verdict import INAPPLICABLE, Verdict


def without_positions(case: AttentionCase, domain: Domain) -> AttentionCase | None:
    """The same case without anything that depends on where a key stands."""
    if None not in domain.causal:
        return None
    changes: dict[str, object] = {
        name: None for name in ("causal", "window", "kv_lengths") if getattr(case, name) is not None
    }
    if case.alibi:
        changes["alibi"] = False
    if case.kv_len < 2:
        if domain.kv_lens is not None:
            return None
        changes["kv_len"] = 2
    return case.but(**changes) if changes else case


@law("key-permutation", adapt=without_positions)
def key_permutation(case: AttentionCase, subject: Subject) -> Verdict:
    """Permuting keys together with their values and mask columns changes nothing."""
    inputs = subject.inputs(case)
    order = np.random.default_rng([case.seed, 41]).permutation(case.kv_len)
    permuted = take_keys(inputs, order)
    outcome, second = subject.call(inputs), subject.call(permuted)
    if not subject.sound(inputs, outcome):
        return INAPPLICABLE
    if (problem := subject.unusable(permuted, second)) is not None:
        return problem
    return subject.same(
        inputs,
        second.output,
        outcome.output,
        slack=subject.allowance(inputs).allowed,
        than="itself with its keys in another order",
    )


def _several_heads(case: AttentionCase, domain: Domain) -> AttentionCase | None:
    return case if case.num_heads >= 2 else None


@law("head-permutation", adapt=_several_heads)
def head_permutation(case: AttentionCase, subject: Subject) -> Verdict:
    """Permuting key/value heads with their query heads, or heads in a group, permutes outputs."""
    inputs = subject.inputs(case)
    rng = np.random.default_rng([case.seed, 43])
    head_of = inputs.kv_head_of
    counts = np.bincount(head_of, minlength=case.num_kv_heads)
    kv_order = np.arange(case.num_kv_heads)
    if len(set(counts.tolist())) == 1 and inputs.memory != "expanded":
        kv_order = rng.permutation(case.num_kv_heads)
    query_order = np.arange(case.num_heads)
    for kv_head in range(case.num_kv_heads):
        slots = np.flatnonzero(head_of == kv_head)
        query_order[slots] = rng.permutation(np.flatnonzero(head_of == kv_order[kv_head]))
    permuted = take_heads(inputs, query_order, kv_order)
    outcome, second = subject.call(inputs), subject.call(permuted)
    if not subject.sound(inputs, outcome):
        return INAPPLICABLE
    if (problem := subject.unusable(permuted, second)) is not None:
        return problem
    permuted_heads = np.s_[:, query_order]
    return subject.same(
        inputs,
        second.output,
        outcome.output[permuted_heads],
        slack=subject.allowance(inputs).allowed[permuted_heads],
        at=permuted_heads,
        than="itself with its heads in another order",
    )


def _slack_of_both(
    inputs: AttentionInputs, first: AttentionInputs, second: AttentionInputs, subject: Subject
) -> Array:
    """What two calls may be off by in sum that differ in their values: both bounds in one go."""
    both = subject.revalued(inputs, np.concatenate([first.value, second.value], axis=-1))
    width, allowed = inputs.value.shape[-1], subject.allowance(both).allowed
    total: Array = allowed[..., :width] + allowed[..., width:]
    return total


@law("linear-in-values")
def linear_in_values(case: AttentionCase, subject: Subject) -> Verdict:
    """The outputs for two halves of the values add up to the output for their sum."""
    inputs = subject.inputs(case)
    chance = np.random.default_rng([case.seed, 47]).random((1, 1, inputs.value.shape[2], 1))
    kept = chance < 0.5
    first = inputs.but(value=np.where(kept, inputs.value, 0.0))
    second = inputs.but(value=np.where(kept, 0.0, inputs.value))
    if case.memory == "expanded" or case.kv_len < 2:
        return INAPPLICABLE
    outcomes = [subject.call(part) for part in (inputs, first, second)]
    if not subject.sound(inputs, outcomes[0]):
        return INAPPLICABLE
    for part, outcome in zip((first, second), outcomes[1:], strict=True):
        if (problem := subject.unusable(part, outcome)) is not None:
            return problem
    # Where the values come near the largest number, half of them may overflow alone.
    finite = all(np.isfinite(outcome.output).all() for outcome in outcomes[1:])
    if not finite and np.isfinite(outcomes[0].output).all():
        return subject.judge(first, outcomes[1])
    with np.errstate(invalid="ignore"):
        total = outcomes[1].output + outcomes[2].output
    return subject.same(
        inputs,
        outcomes[0].output,
        total,
        slack=_slack_of_both(inputs, first, second, subject),
        than="the sum of its outputs for two halves of the values",
    )
