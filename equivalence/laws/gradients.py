"""Laws about the backward pass: dQ, dK and dV are those of float64, and groups sum."""

from __future__ import annotations

from typing import Any

import numpy as np

from equivalence.case import AttentionCase
from equivalence.domain import Domain
from equivalence.dtypes import Array, format_of, rounded
from equivalence.gradients import (
    OPERANDS,
    BackwardFlow,
    Gradients,
    backward_flow,
    by_kv_head,
    gradients,
)
from equivalence.inputs import AttentionInputs
from equivalence.laws.law import law
from equivalence.subject import Subject
from equivalence.verdict import INAPPLICABLE, Trouble, Verdict, broken


@law("gradients-agree")
def gradients_agree(case: AttentionCase, subject: Subject) -> Verdict:
    """The gradients of query, key and value are within their bound of the float64 ones."""
    inputs = subject.inputs(case)
    answer = _shared_backward(case, inputs, subject)
    if isinstance(answer, Verdict):
        return answer
    found, exact = answer
    return _judged(found, exact.exact, exact.allowed, inputs, subject, "the float64 gradient")


def _grouped(case: AttentionCase, domain: Domain) -> AttentionCase | None:
    return case if case.group_size >= 2 else None


@law("group-gradients-sum", adapt=_grouped)
def group_gradients_sum(case: AttentionCase, subject: Subject) -> Verdict:
    """dK and dV of a shared head are the sums over the query heads that read it."""
    inputs = subject.inputs(case)
    memory = "contiguous" if inputs.memory == "expanded" else inputs.memory
    apart = inputs.but(
        key=inputs.key[:, inputs.kv_head_of],
        value=inputs.value[:, inputs.kv_head_of],
        kv_head_of=np.arange(case.num_heads),
        head_order="grouped",
        memory=memory,
    )
    answer = _shared_backward(case, inputs, subject)
    if isinstance(answer, Verdict):
        return answer
    subject.alike(inputs, apart)  # every query head reads what it read
    flow = _flow(case, inputs, subject)
    subject.once("flow", apart, lambda: flow)
    single = _backward(case, apart, subject)
    if isinstance(single, Verdict):
        return INAPPLICABLE if single.status != "broken" else single
    (found, exact), (parts, parts_exact) = answer, single
    summed, allowed = [], []
    for part, slack in zip(parts[1:], parts_exact.allowed[1:], strict=True):
        summed.append(by_kv_head(part, inputs.kv_head_of, case.num_kv_heads))
        allowed.append(by_kv_head(slack, inputs.kv_head_of, case.num_kv_heads))
    expected = (parts[0], summed[0], summed[1])
    total = (
        exact.allowed[0] + parts_exact.allowed[0],
        exact.allowed[1] + allowed[0],
        exact.allowed[2] + allowed[1],
    )
    return _judged(found, expected, total, inputs, subject, "the sum over its group")


def _shared_backward(
    case: AttentionCase, inputs: AttentionInputs, subject: Subject
) -> tuple[tuple[Array, Array, Array], Gradients] | Verdict:
    """The same for both laws: one backward pass of the target, and one of the reference."""
    return subject.once("backward", inputs, lambda: _backward(case, inputs, subject))


def _backward(
    case: AttentionCase, inputs: AttentionInputs, subject: Subject
) -> tuple[tuple[Array, Array, Array], Gradients] | Verdict:
    """The target's gradients and the exact ones, or why there is nothing to judge."""
    if subject.declared.gradients is False or subject.declared.arrays != "torch":
        return INAPPLICABLE
    exact, allowed = subject.exact(inputs), subject.allowance(inputs)
    if not allowed.in_domain.all() or not (exact.seen > 0).all():
        return INAPPLICABLE
    if not subject.sound(inputs, subject.call(inputs)):
        return INAPPLICABLE
    flow = _flow(case, inputs, subject)
    if not flow.largest_product < format_of(inputs.dtype).max_finite / 16:
        return INAPPLICABLE
    upstream, profile = _upstream(case, inputs, subject), subject.profile(inputs.dtype)
    outcome = subject.call_again(inputs, upstream)
    if not subject.declared.gradients and outcome.status != "returned":
        return Verdict(status="inapplicable", remarks=("no gradients",))
    if (problem := subject.unusable(inputs, outcome)) is not None:
        return problem
    if outcome.gradients is None:
        return broken(Trouble(kind="gradient", text="no gradients came back"))
    expected = gradients(inputs, exact, allowed.allowed, upstream, profile, flow=flow)
    return outcome.gradients, expected


def _flow(case: AttentionCase, inputs: AttentionInputs, subject: Subject) -> BackwardFlow:
    """What flows back to the scores, which is the same whether heads share keys or not."""
    exact, error = subject.exact(inputs), subject.allowance(inputs).allowed
    profile = subject.profile(inputs.dtype)
    return subject.once(
        "flow",
        inputs,
        lambda: backward_flow(
            inputs,
            exact,
            error,
            _upstream(case, inputs, subject),
            profile,
            weights=subject.weights(inputs),
        ),
    )


def _upstream(case: AttentionCase, inputs: AttentionInputs, subject: Subject) -> Array:
    return subject.once("upstream", inputs, lambda: _drawn_upstream(case, inputs))


def _drawn_upstream(case: AttentionCase, inputs: AttentionInputs) -> Array:
    shape = (*inputs.query.shape[:3], inputs.value.shape[3])
    noise = np.random.default_rng([case.seed, 53]).normal(size=shape)
    if case.values in ("ramp", "steps", "zero"):
        noise = np.ones(shape)
    if case.memory == "expanded":
        noise[:] = noise[:, :1]
    return rounded(noise, inputs.dtype)


def _judged(
    found: tuple[Array, Array, Array],
    expected: tuple[Array, ...],
    allowed: tuple[Array, ...],
    inputs: AttentionInputs,
    subject: Subject,
    than: str,
) -> Verdict:
    worst: dict[str, Any] = {"used": 0.0}
    for name, actual, exact, bound in zip(OPERANDS, found, expected, allowed, strict=True):
        if actual.shape != exact.shape:
            text = f"the gradient of {name} has shape {list(actual.shape)}"
            return broken(Trouble(kind="gradient", text=text))
        with np.errstate(invalid="ignore", divide="ignore"):
            error = np.abs(actual - exact)
            used = np.where(error == 0, 0.0, error / bound)
        used = np.where(np.isnan(used), np.inf, used)
        top = float(used.max(initial=0.0))
        if top > worst["used"]:
            index = tuple(int(i) for i in np.unravel_index(int(np.argmax(used)), used.shape))
            worst = {
                "used": top,
                "text": f"the gradient of {name} disagrees with {than} at {list(index)}",
                "index": index,
                "got": float(actual[index]),
                "expected": float(exact[index]),
                "error": float(error[index]),
                "allowed": float(bound[index]),
                "outside": int((used > 1).sum()),
                "total": used.size,
            }
    declared = bool(subject.declared.gradients)
    if worst["used"] <= 1:
        if declared:
            return Verdict(status="held", used=worst["used"])
        return Verdict(status="inapplicable", remarks=("gradients agree with float64",))
    if not declared:
        return Verdict(status="inapplicable", remarks=("gradients disagree with float64",))
    return broken(Trouble(kind="gradient", profile=subject.profile(inputs.dtype).name, **worst))
