"""Break a kernel, show that it fails on a case, and ask what the mistake is."""

from __future__ import annotations

from equivalence.bounds import allowance
from equivalence.calling import LocalTarget
from equivalence.compare import compare
from equivalence.diagnosis import diagnose
from equivalence.domain import Domain
from equivalence.inputs import attention_inputs
from equivalence.profiles import profile_for
from equivalence.reference import attention
from equivalence.verdict import Trouble

DOMAIN = Domain(
    causal=(None, "lower_right", "upper_left"),
    windows=("int", "pair"),
    softcap=True,
    sinks=True,
    alibi=True,
    kv_lengths=True,
    mask_and_causal=True,
)


def diagnosis_of(function, case, *, domain=DOMAIN, must_fail=True, card=None, **facts):
    """The diagnosis of ``function`` on ``case``, on which it must be outside its bound."""
    target = LocalTarget.of(function, name="kernel", facts=facts)
    inputs = attention_inputs(case)
    outcome = target.call(inputs)
    assert outcome.stored is not None, outcome.text
    exact = attention(inputs)
    profile = profile_for(case.dtype, target.declaration.profile)
    found = compare(
        outcome.output,
        exact.output,
        allowance(inputs, exact, profile),
        dtype=case.dtype,
        rows=exact.seen > 0,
    )
    assert not (must_fail and found.passes), "the counterexample does not fail"
    trouble = Trouble(
        kind="non-finite" if found.nonfinite else "outside-bound",
        text=f"disagrees with float64 attention at output{list(found.index)}",
        index=found.index,
        got=found.got,
        expected=found.expected,
        used=found.used,
        profile=profile.name,
    )
    return diagnose(target, domain, case, trouble, card and (lambda: card))
