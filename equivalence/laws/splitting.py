"""Laws for kernels that return a log-sum-exp: the parts of a split merge to the whole."""

from __future__ import annotations

import numpy as np

from equivalence.bounds import lse_allowance
from equivalence.case import AttentionCase
from equivalence.domain import Domain
from equivalence.dtypes import Array
from equivalence.laws.law import law
from equivalence.laws.symmetry import without_positions
from equivalence.subject import Subject
from equivalence.transforms import take_keys
from equivalence.verdict import INAPPLICABLE, Trouble, Verdict, broken


def _splittable(case: AttentionCase, domain: Domain) -> AttentionCase | None:
    found = without_positions(case, domain)
    if found is None or domain.kv_lens is not None:
        return None
    return found.but(sinks=False) if found.sinks else found


@law("split-merge", adapt=_splittable)
def split_merge(case: AttentionCase, subject: Subject) -> Verdict:
    """Two parts of the keys, merged by their log-sum-exp, give the output for all of them."""
    if subject.declared.lse is None:
        return INAPPLICABLE
    inputs = subject.inputs(case)
    cut = 1 + case.seed % (case.kv_len - 1)
    parts = [take_keys(inputs, np.arange(cut)), take_keys(inputs, np.arange(cut, case.kv_len))]
    whole = subject.call(inputs)
    if not subject.sound(inputs, whole):
        return INAPPLICABLE
    unit = np.log(2.0) if subject.declared.lse == "base2" else 1.0
    outputs: list[Array] = []
    weights: list[Array] = []
    slack, lse_slack = np.zeros(1), np.zeros(1)
    for part in parts:
        outcome = subject.call(part)
        if (problem := subject.unusable(part, outcome)) is not None:
            return problem
        if outcome.lse is None or outcome.lse.shape != outcome.output.shape[:3]:
            return broken(Trouble(kind="lse", text="a part of the keys came without log-sum-exp"))
        outputs.append(outcome.output)
        weights.append(outcome.lse * unit)
        exact = subject.exact(part)
        off = lse_allowance(part, exact, subject.profile(part.dtype))
        slack = slack + np.where(exact.seen[..., None] > 0, subject.allowance(part).allowed, 0.0)
        lse_slack = np.maximum(lse_slack, np.where(exact.seen > 0, off, 0.0))
    top = np.maximum(weights[0], weights[1])
    with np.errstate(invalid="ignore", over="ignore"):  # of a log-sum-exp that is +inf, or wrong
        shares = [np.exp(w - np.where(np.isfinite(top), top, 0.0)) for w in weights]
        total = shares[0] + shares[1]
        merged = sum(
            np.where(share[..., None] == 0, 0.0, output * (share / total)[..., None])
            for share, output in zip(shares, outputs, strict=True)
        )
    moved = np.expm1(np.minimum(2.0 * np.asarray(lse_slack), 50.0))[..., None]
    reach = subject.allowance(inputs).furthest
    return subject.same(
        inputs,
        np.asarray(merged),
        whole.output,
        slack=slack + moved * reach,
        kind="lse",
        than="its own output for all keys, once two parts are merged",
    )
