"""Laws of scaled rotary embeddings: every type, and every way to give its attention factor."""

from __future__ import annotations

from typing import Final

import numpy as np

from equivalence.compare import compare
from equivalence.errors import InvalidRequest
from equivalence.laws.law import law
from equivalence.rope.bounds import norm_allowance
from equivalence.rope.case import RotaryCase
from equivalence.rope.domain import RotaryDomain
from equivalence.rope.reference import pairs
from equivalence.rope.scaling import RopeScaling
from equivalence.rope.subject import RotarySubject
from equivalence.verdict import INAPPLICABLE, Trouble, Verdict, broken

# Both mscales absent, equal, different, one alone; given outright; and LongRoPE's own formula.
FACTORS: Final = (
    RopeScaling(rope_type="yarn"),
    RopeScaling(rope_type="yarn", mscale=1.0, mscale_all_dim=1.0),
    RopeScaling(rope_type="yarn", mscale=0.707, mscale_all_dim=1.0),
    RopeScaling(rope_type="yarn", attention_factor=1.0),
    RopeScaling(rope_type="yarn", attention_factor=1.5),
    RopeScaling(rope_type="yarn", mscale=0.707),
    RopeScaling(rope_type="longrope"),
    RopeScaling(rope_type="longrope", attention_factor=1.5),
)
TYPES: Final = (
    RopeScaling(rope_type="linear"),
    RopeScaling(rope_type="dynamic"),
    RopeScaling(rope_type="yarn"),
    RopeScaling(rope_type="llama3"),
    RopeScaling(rope_type="longrope"),
    RopeScaling(rope_type="dynamic", factor=4.0, original_max_position_embeddings=64),
    RopeScaling(rope_type="yarn", factor=4.0, original_max_position_embeddings=64, beta_fast=8.0),
    RopeScaling(rope_type="yarn", original_max_position_embeddings=4096, truncate=False),
    RopeScaling(rope_type="llama3", factor=8.0, original_max_position_embeddings=8192),
    RopeScaling(rope_type="longrope", factor=4.0, original_max_position_embeddings=64),
)


def _one_of(
    case: RotaryCase, domain: RotaryDomain, lattice: tuple[RopeScaling, ...]
) -> RotaryCase | None:
    """The same case with one scaling of a lattice that the domain admits."""
    offered = [s for s in lattice if s.rope_type in domain.scalings]
    if case.scaling in offered:
        return case
    place = case.seed + case.start + case.seq_len + 3 * case.head_dim + case.num_heads
    for turn in range(len(offered)):
        try:
            return case.but(scaling=offered[(place + turn) % len(offered)])
        except InvalidRequest:  # dynamic scaling of a single pair
            continue
    return None


def _with_factor(case: RotaryCase, domain: RotaryDomain) -> RotaryCase | None:
    """A scaling with an attention factor, or the factor by itself."""
    if case.attention_factor is not None:
        return case
    chosen = _one_of(case, domain, FACTORS)
    if chosen is None and domain.attention_factor:
        return case.but(attention_factor=2.0)
    return chosen


@law("attention-factor-is-applied-once", kind="rotary", adapt=_with_factor)
def attention_factor_is_applied_once(case: RotaryCase, subject: RotarySubject) -> Verdict:
    """A pair grows by exactly the attention factor, as given or as its scaling infers it."""
    inputs = subject.inputs(case)
    outcome = subject.call(inputs)
    if subject.unusable(inputs, outcome) is not None:
        return INAPPLICABLE
    exact = subject.exact(inputs)
    first, second = pairs(inputs.turning, inputs.pairing)
    lengths = np.hypot(inputs.x[..., first], inputs.x[..., second])
    actual = np.hypot(outcome.output[..., first], outcome.output[..., second])
    profile = subject.profile(inputs.dtype)
    limits = norm_allowance(inputs, exact, profile, subject.declared.tables)
    facts = compare(actual, exact.factor * lengths, limits, dtype=inputs.dtype)
    if facts.passes:
        return Verdict(status="vacuous" if facts.vacuous else "held", used=facts.used)
    grown = facts.got / lengths[facts.index]
    if not np.allclose(actual, grown * lengths, rtol=0.05, atol=1e-6):
        return INAPPLICABLE  # not one factor for all: another law's finding
    return broken(
        Trouble(
            kind="disagreement",
            text=f"pairs grow by {grown:.6g}, the attention factor is {exact.factor:.6g}",
            index=facts.index,
            got=facts.got,
            expected=facts.expected,
            error=facts.error,
            allowed=facts.allowed,
            used=facts.used,
            outside=facts.outside,
            total=facts.judged,
            profile=profile.name,
        )
    )


def _with_scaling(case: RotaryCase, domain: RotaryDomain) -> RotaryCase | None:
    return _one_of(case, domain, TYPES)


@law("every-scaling-is-applied", kind="rotary", adapt=_with_scaling)
def every_scaling_is_applied(case: RotaryCase, subject: RotarySubject) -> Verdict:
    """Each type of scaling turns by its own frequencies, below and beyond the original length."""
    inputs = subject.inputs(case)
    return subject.judge(inputs, subject.call(inputs))
