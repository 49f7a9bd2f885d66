"""Laws of latent attention about values and conduct."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from equivalence.dtypes import Array
from equivalence.latent.case import MlaCase
from equivalence.latent.domain import MlaDomain
from equivalence.latent.inputs import OPERANDS
from equivalence.latent.subject import MlaSubject
from equivalence.latent.transforms import refill_tokens, take_batch
from equivalence.laws.law import law
from equivalence.verdict import HELD, INAPPLICABLE, Trouble, Verdict, broken

CLEARLY_SEEN = 2.0**-6


@law("mla-agrees-with-float64", kind="mla")
def agrees_with_float64(case: MlaCase, subject: MlaSubject) -> Verdict:
    """Every output element is within the derived error bound of float64 latent attention."""
    inputs = subject.inputs(case)
    return subject.judge(inputs, subject.call(inputs))


@law("mla-inputs-are-not-modified", kind="mla")
def inputs_are_not_modified(case: MlaCase, subject: MlaSubject) -> Verdict:
    """A call leaves its six tensors, and the memory around them, as they were."""
    outcome = subject.call(subject.inputs(case))
    if outcome.status != "returned":
        return INAPPLICABLE
    if not outcome.mutated:
        return HELD
    text = f"the call wrote to its {', '.join(outcome.mutated)}"
    return broken(Trouble(kind="input-mutation", text=text))


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
    inputs = subject.inputs(case)
    plain = inputs.but(memory="contiguous")
    strided, flat = subject.call(inputs), subject.call(plain)
    if not subject.sound(plain, flat):
        return INAPPLICABLE
    if (problem := subject.unusable(inputs, strided)) is not None:
        return problem
    verdict = subject.same(
        inputs,
        strided.output,
        flat.output,
        slack=subject.allowance(inputs).allowed,
        kind=kind,
        than=f"itself on contiguous tensors (memory is {case.memory!r})",
    )
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
    alone = take_batch(inputs, np.array([row]))
    whole, one = subject.call(inputs), subject.call(alone)
    if not subject.sound(inputs, whole):
        return INAPPLICABLE
    if (problem := subject.unusable(alone, one)) is not None:
        return problem
    if subject.declared.batch_invariant:
        assert whole.stored is not None
        assert one.stored is not None
        if (different := _other_bits(whole.stored[row : row + 1], one.stored)) is not None:
            return broken(
                Trouble(
                    kind="batch-dependence",
                    text=f"batch row {row} alone gives other bits at output{list(different)}",
                    index=different,
                    got=float(one.output[different]),
                    expected=float(whole.output[row : row + 1][different]),
                )
            )
    allowed = subject.allowance(inputs)
    return subject.same(
        alone,
        one.output,
        whole.output[row : row + 1],
        slack=allowed.allowed[row : row + 1],
        rows=allowed.in_domain[row : row + 1],
        kind="batch-dependence",
        than=f"batch row {row} of the whole batch",
    )


@law("mla-repeats-itself", kind="mla")
def repeats_itself(case: MlaCase, subject: MlaSubject) -> Verdict:
    """A repeated call gives the same answer, bit for bit where the target declares it."""
    inputs = subject.inputs(case)
    first = subject.call(inputs)
    if not subject.sound(inputs, first):
        return INAPPLICABLE
    second = subject.call_again(inputs)
    if (problem := subject.unusable(inputs, second)) is not None:
        return problem
    assert first.stored is not None
    assert second.stored is not None
    if (different := _other_bits(first.stored, second.stored)) is None:
        return HELD
    if subject.declared.deterministic:
        return broken(
            Trouble(
                kind="not-repeatable",
                text=f"a repeated call gives other bits at output{list(different)}",
                index=different,
                got=float(second.output[different]),
                expected=float(first.output[different]),
            )
        )
    verdict = subject.same(
        inputs,
        second.output,
        first.output,
        slack=subject.allowance(inputs).allowed,
        kind="not-repeatable",
        than="its own first answer to the same call",
    )
    return replace(verdict, remarks=("a repeated call gives other bits",))


def _other_bits(first: Array, second: Array) -> tuple[int, ...] | None:
    """The first index at which two stored outputs differ; NaN equals NaN."""
    both_nan = np.isnan(first.astype(np.float64)) & np.isnan(second.astype(np.float64))
    different = np.argwhere((first != second) & ~both_nan)
    return tuple(int(i) for i in different[0]) if len(different) else None


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


def _later_tokens(case: MlaCase, domain: MlaDomain) -> MlaCase | None:
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


@law("mla-hidden-nan-is-ignored", kind="mla", adapt=_later_tokens)
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
    if subject.declared.hidden_nan == "ignored":
        if verdict.trouble is not None:
            return broken(replace(verdict.trouble, kind="nan-leak"))
        return verdict
    leaks = "leaks" if verdict.status == "broken" else "is ignored"
    return Verdict(status="inapplicable", remarks=(f"NaN in later tokens {leaks}",))


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
    empty = np.broadcast_to((subject.exact(inputs).seen == 0)[..., None], outcome.output.shape)
    if not empty.any():
        return INAPPLICABLE
    actual, policy = outcome.output, subject.declared.masked_rows
    found = _what_is_there(actual[empty])
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


def _what_is_there(numbers: Array) -> str:
    if not numbers.any():
        return "zeros"
    if np.isnan(numbers).all():
        return "NaN"
    return "finite numbers" if np.isfinite(numbers).all() else "NaN or infinity in places"
