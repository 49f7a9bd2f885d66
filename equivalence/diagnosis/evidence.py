"""What was seen: the counterexample and its variants, each next to what is right."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
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
from equivalence.profiles import profile_for
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
    return looks(target, case, domain)[0]


def looks(target: Target, case: Any, domain: Domain) -> tuple[list[Sight], list[Sight]]:
    """The counterexample and its variants: those that are wrong, and those that are right."""
    found: list[Sight] = []
    right: list[Sight] = []
    for one in (case, *variants(case, domain)):
        if one is not case and target.supports(one) is not True:
            continue
        sight = look(target, one)
        if sight is not None:
            (found if sight.wrong.any() else right).append(sight)
    return found, right


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """near: the output is, within the bound, what the world gives. telling: the right output, or
    one as far away as what was seen, would not be.
    """

    near: bool
    telling: bool


def explains(suspect: Suspect, sight: Sight) -> Fit | None:
    """Whether the output is what the suspect would give; None where it has no say."""
    world = world_of(suspect, sight.inputs)
    if world is None:
        return None
    try:
        return fit(world, sight)
    except ValueError:  # shapes that the bound does not know
        return None


def fit(world: World, sight: Sight) -> Fit:
    """Compare the output of ``sight`` with that of ``world``."""
    with np.errstate(all="ignore"):
        output = world.output()
        if output.shape != sight.actual.shape:
            return Fit(near=False, telling=False)
        allowed = world.allowed(sight.profile)
        error = np.abs(sight.actual - output)
        near = (error <= allowed) | (np.isnan(sight.actual) & np.isnan(output))
        near |= np.isinf(sight.actual) & (np.abs(output) + allowed > 6e4)
        away = np.abs(sight.actual - sight.exact.output)
        far = ~(away <= 0.05 * np.abs(sight.inputs.value).max(initial=0.0))
        empty = world.empty()
        near = np.where(empty, ~sight.wrong | _as_if_empty(sight, far), near)
        telling = np.where(empty, far, ~(allowed >= 0.7 * away))
    return Fit(near=bool(near.all()), telling=bool(telling[sight.wrong].any()))


def foretells_a_fault(suspect: Suspect, sight: Sight) -> bool:
    """Whether the suspect would make a call wrong that came back right."""
    world = world_of(suspect, sight.inputs)
    if world is None:
        return False
    try:
        with np.errstate(all="ignore"):
            output = world.output()
            allowed = world.allowed(sight.profile)
    except ValueError:  # shapes that the bound does not know
        return False
    if output.shape != sight.actual.shape:
        return True
    away = ~(np.abs(sight.actual - output) <= allowed)
    nothing = (sight.actual == 0) | np.isnan(sight.actual)  # what a row without keys may hold
    return bool(np.where(world.empty(), ~nothing, away).any())


def fits_all(worlds: Iterable[World], seen: list[Sight]) -> bool:
    """Whether every sight is near its world, and at least one of them says something."""
    found = [fit(world, sight) for world, sight in zip(worlds, seen, strict=True)]
    return all(f.near for f in found) and any(f.telling for f in found)


def _as_if_empty(sight: Sight, far: Array) -> Array:
    """Elements that may stand in a row without keys: zero, NaN, or the mean of the values.

    The mean counts only ``far`` from what is right, which is a mean of sorts as well.
    """
    value = sight.inputs.value[:, sight.inputs.kv_head_of]
    mean = value.mean(axis=2, keepdims=True) if value.shape[2] else 0.0
    near_mean = np.abs(sight.actual - mean) <= 0.02 * np.abs(value).max(initial=0.0)
    return np.asarray((sight.actual == 0) | np.isnan(sight.actual) | (near_mean & far))
