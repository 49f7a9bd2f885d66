"""Laws of latent attention about values and conduct."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from equivalence.latent.case import MlaCase
from equivalence.latent.domain import MlaDomain
from equivalence.latent.inputs import OPERANDS
from equivalence.latent.subject import MlaSubject
from equivalence.latent.transforms import refill_tokens, take_batch
from equivalence.laws.alike import (
    CLEARLY_SEEN,
    as_contiguous,
    repeats,
    row_alone,
    untouched,
    what_rows_hold,
    where_declared,
)
from equivalence.laws.law import law
from equivalence.verdict import HELD, INAPPLICABLE, Trouble, Verdict, broken


@law("mla-agrees-with-float64", kind="mla")
def agrees_with_float64(case: MlaCase, subject: MlaSubject) -> Verdict:
    """Every output element is within the derived error bound of float64 latent attention."""
    inputs = subject.inputs(case)
    return subject.judge(inputs, subject.call(inputs))


@law("mla-inputs-are-not-modified", kind="mla")
def inputs_are_not_modified(case: MlaCase, subject: MlaSubject) -> Verdict:
    """A call leaves its six tensors, and the memory around them, as they were."""
    return untouched(subject, subject.inputs(case))


def _strided(case: MlaCase, domain: MlaDomain) -> MlaCase | None:
    others = [memory for memory in domain.memories if memory not in ("contiguous", "cache")]
    if case.memory in others:
        return case
    return case.but(memory=others[case.seed % len(others)]) if others else None


@law("mla-strides-do-not-matter", kind="mla", adapt=_strided)
def strides_do_not_matter(case: MlaCase, subject: MlaSubject) -> Verdict:
    """The same numbers behind other strides give the same output."""
    return _other_memory(case, subject, kind="strides")


def _cached(case: MlaCase, domain: MlaDomain) -> MlaCase | None:
    return case.but(memory="cache") if "cache" in domain.memories else None


@law("mla-unused-slots-do-not-matter", kind="mla", adapt=_cached)
def unused_slots_do_not_matter(case: MlaCase, subject: MlaSubject) -> Verdict:
    """What lies in the cache behind the last token, NaN included, changes nothing."""
    return _other_memory(case, subject, kind="hidden-keys")


def _other_memory(case: MlaCase, subject: MlaSubject, *, kind: str) -> Verdict:
    verdict = as_contiguous(subject, subject.inputs(case), kind=kind)
    if verdict.trouble is not None and verdict.trouble.kind == "non-finite":
        # The memory around the tensors is NaN: reading it is the fault, not the NaN.
        return broken(replace(verdict.trouble, kind=kind))
    return verdict


def _several_rows(case: MlaCase, domain: MlaDomain) -> MlaCase | None:
    if case.batch_size >= 2:
        return case
    return case.but(batch_size=2) if domain.batch_size[1] >= 2 else None


@law("mla-batch-rows-are-independent", kind="mla", adapt=_several_rows)
def batch_rows_are_independent(case: MlaCase, subject: MlaSubject) -> Verdict:
    """A batch row alone gives what it gives in its batch, bit for bit where declared."""
    inputs = subject.inputs(case)
    row = case.seed % case.batch_size
    return row_alone(subject, inputs, take_batch(inputs, np.array([row])), row)


@law("mla-repeats-itself", kind="mla")
def repeats_itself(case: MlaCase, subject: MlaSubject) -> Verdict:
    """A repeated call gives the same answer, bit for bit where the target declares it."""
    return repeats(subject, subject.inputs(case))


@law("mla-visible-nan-is-kept", kind="mla")
def visible_nan_is_kept(case: MlaCase, subject: MlaSubject) -> Verdict:
    """NaN in a token that a query sees, or in the query, reaches every row that clearly sees it."""
    inputs = subject.inputs(case)
    exact = subject.exact(inputs)
    clearly = exact.probabilities > CLEARLY_SEEN
    outcome = subject.call(inputs)
    if not clearly.any() or not subject.sound(inputs, outcome):
        return INAPPLICABLE
    candidates = np.argwhere(clearly)
    batch, head, query, token = candidates[case.seed % len(candidates)]
    operand = OPERANDS[case.seed % 4]
    changed = getattr(inputs, operand).copy()
    rows = np.zeros(exact.seen.shape, bool)
    if operand.startswith("query"):
        changed[batch, head, query] = np.nan
        rows[batch, head, query] = True
    else:
        changed[batch, token] = np.nan
        rows[batch] = clearly[batch, :, :, token]
    poisoned = inputs.but(**{operand: changed})
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


def later_tokens(case: MlaCase, domain: MlaDomain) -> MlaCase | None:
    """At least two queries and two tokens, so that the first query does not see the last token."""
    if domain.q_lens is not None and max(domain.q_lens) < 2:
        return None
    changes = {}
    if case.q_len < 2:
        longer = [n for n in domain.q_lens or (2,) if n >= 2]
        changes["q_len"] = longer[0]
    if case.kv_len < changes.get("q_len", case.q_len):
        if domain.kv_lens is not None:
            return None
        changes["kv_len"] = changes.get("q_len", case.q_len)
    return case.but(**changes) if changes else case


@law("mla-hidden-nan-is-ignored", kind="mla", adapt=later_tokens)
def hidden_nan_is_ignored(case: MlaCase, subject: MlaSubject) -> Verdict:
    """NaN in a token that a query does not see never reaches its output, where declared."""
    inputs = subject.inputs(case)
    outcome = subject.call(inputs)
    if not subject.sound(inputs, outcome):
        return INAPPLICABLE
    last = np.zeros(case.kv_len, bool)
    last[-1] = True
    poisoned = refill_tokens(inputs, last, seed=case.seed, number=float("nan"))
    second = subject.call(poisoned)
    if (problem := subject.unusable(poisoned, second)) is not None:
        return problem
    earlier = np.ones(subject.exact(inputs).seen.shape, bool)
    earlier[:, :, -1] = False
    allowed = subject.allowance(inputs)
    verdict = subject.same(
        inputs,
        second.output,
        outcome.output,
        slack=allowed.allowed,
        rows=earlier & allowed.in_domain,
        kind="nan-leak",
        than="itself after the last token became NaN",
    )
    return where_declared(verdict, subject, "later tokens")


def _with_empty_rows(case: MlaCase, domain: MlaDomain) -> MlaCase | None:
    """More queries than tokens: lower-right, the first ones see nothing."""
    if not domain.longer_queries or domain.q_lens is not None or domain.kv_lens is not None:
        return None
    kv_len = min(case.kv_len, 4)
    q_len = case.q_len if case.q_len > kv_len else kv_len + 2
    return case.but(kv_len=kv_len, q_len=q_len)


@law("mla-masked-rows", kind="mla", adapt=_with_empty_rows)
def masked_rows(case: MlaCase, subject: MlaSubject) -> Verdict:
    """A query that sees no token gets what the target declares: zeros, NaN or finite numbers."""
    inputs = subject.inputs(case)
    outcome = subject.call(inputs)
    if subject.unusable(inputs, outcome) is not None:
        return INAPPLICABLE
    asked = (subject.exact(inputs).seen == 0) & subject.allowance(inputs).in_domain
    empty = np.broadcast_to(asked[..., None], outcome.output.shape)
    if not empty.any():
        return INAPPLICABLE
    actual, policy = outcome.output, subject.declared.masked_rows
    found = what_rows_hold(actual[empty])
    if policy in (None, "uniform"):
        remark = f"rows that see no token hold {found}"
        return Verdict(status="inapplicable", remarks=(remark,))
    wrong = (
        empty
        & {
            "zeros": actual != 0,
            "nan": ~np.isnan(actual),
            "finite": ~np.isfinite(actual),
        }[policy]
    )
    if not wrong.any():
        return HELD
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    return broken(
        Trouble(
            kind="masked-rows",
            text=f"a row that sees no token holds {found}, declared {policy}",
            index=index,
            got=float(actual[index]),
            outside=int(wrong.sum()),
            total=int(empty.sum()),
        )
    )
