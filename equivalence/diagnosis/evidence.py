"""What was seen: the counterexample and its variants, each next to what is right."""

from __future__ import annotations

from typing import Any

import numpy as np

from equivalence.bounds import allowance
from equivalence.compare import compare
from equivalence.diagnosis.imagining import Sight, Suspect, World, world_of
from equivalence.diagnosis.variants import variants
from equivalence.domain import Domain
from equivalence.dtypes import Array
from equivalence.inputs import AttentionInputs, attention_inputs
from equivalence.outcome import Target
from equivalence.profiles import Profile, profile_for
from equivalence.reference import attention


def look(target: Target, case: Any, inputs: AttentionInputs | None = None) -> Sight | None:
    """Call the target once and compare; None where no output of the right shape came back."""
    inputs = attention_inputs(case) if inputs is None else inputs
    outcome = target.call(inputs)
    shape = (*inputs.query.shape[:3], inputs.value.shape[3])
    if outcome.stored is None or outcome.stored.shape != shape:
        return None
    profile = profile_for(inputs.dtype, target.declaration.profile)
    exact = attention(inputs)
    allowed = allowance(inputs, exact, profile)
    facts = compare(outcome.output, exact.output, allowed, dtype=inputs.dtype, rows=exact.seen > 0)
    return Sight(
        case=case,
        inputs=inputs,
        actual=outcome.output,
        exact=exact,
        allowed=allowed.allowed,
        wrong=facts.wrong,
        profile=profile,
    )


def sights(target: Target, case: Any, domain: Domain) -> list[Sight]:
    """The counterexample, if it is wrong, and every variant of it that is."""
    found = []
    for one in (case, *variants(case, domain)):
        if one is not case and target.supports(one) is not True:
            continue
        sight = look(target, one)
        if sight is not None and sight.wrong.any():
            found.append(sight)
    return found


def explains(suspect: Suspect, sight: Sight) -> bool | None:
    """Whether the output is, within the bound, what the suspect would give; None: no say.

    An explanation whose own bound would let the right output pass as well is none.
    """
    world = world_of(suspect, sight.inputs)
    if world is None:
        return None
    return fits(world, sight)


def fits(world: World, sight: Sight, profile: Profile | None = None) -> bool:
    """Whether the output of ``sight`` is that of ``world`` within its bound."""
    with np.errstate(all="ignore"):
        output = world.output()
        if output.shape != sight.actual.shape:
            return False
        allowed = world.allowed(profile or sight.profile)
        error = np.abs(sight.actual - output)
        near = (error <= allowed) | (np.isnan(sight.actual) & np.isnan(output))
        near |= np.isinf(sight.actual) & (np.abs(output) + allowed > 6e4)
        empty = np.broadcast_to((world.seen() == 0)[..., None], output.shape)
        near = np.where(empty, _is_empty_row(sight), near)
        if not near.all():
            return False
        away = np.abs(sight.actual - sight.exact.output)
        told_apart = ~(allowed >= 0.5 * away) | ~np.isfinite(sight.actual) | empty
    return bool(told_apart[sight.wrong].any())


def _is_empty_row(sight: Sight) -> Array:
    """Elements that may stand in a row without keys: zero, NaN, or a mean of the values."""
    value = sight.inputs.value[:, sight.inputs.kv_head_of]
    mean = value.mean(axis=2, keepdims=True) if value.shape[2] else 0.0
    near_mean = np.abs(sight.actual - mean) <= 0.02 * np.abs(value).max(initial=0.0)
    return np.asarray((sight.actual == 0) | np.isnan(sight.actual) | near_mean)
