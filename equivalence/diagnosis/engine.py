"""From a counterexample to the name of the mistake."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from equivalence.case import AttentionCase
from equivalence.diagnosis.by_card import faults
from equivalence.diagnosis.evidence import Fit, explains, foretells_a_fault, look, looks
from equivalence.diagnosis.experiments import by_length, by_weights, guilty_option, noisy
from equivalence.diagnosis.imagining import Sight, Suspect, world_of
from equivalence.diagnosis.numbers import (
    finite_minimum_rows,
    fitted_factor,
    loose_precision,
    maximum_kept,
    merged_by_lse,
    overflow,
    with_small_biases,
)
from equivalence.diagnosis.table import suspects
from equivalence.diagnosis.troubles import FALLBACK, IGNORED_KINDS, SECONDARY, direct, options_of
from equivalence.diagnosis.variants import variants, with_other_heads, without_options
from equivalence.domain import Domain
from equivalence.inputs import attention_inputs
from equivalence.outcome import Target
from equivalence.probes.card import IdentityCard
from equivalence.results import Diagnosis
from equivalence.verdict import Trouble

SHORT_ROW: Final = 16  # one vector of AVX-512 in float32
LARGE_GROUP: Final = 32  # below it the sum stays within its profile
EXPECT_IT: Final = "so if the target only calls that, expect it: one line in equivalence-xfails.txt"
INHERITED: Final = {
    "nan-laundered": (
        "torch's fused CPU kernel does so in rows shorter than one vector (pytorch#141128), "
        + EXPECT_IT
    ),
    "gradient": (
        "torch's fused CPU kernel sums the gradients of a group of heads in 16 bits "
        "(`equivalence findings torch-gqa-gradient-sum`), " + EXPECT_IT
    ),
}


def diagnose(
    target: Target,
    domain: Domain,
    case: Any,
    trouble: Trouble,
    probe: Callable[[], IdentityCard] | None = None,
) -> Diagnosis:
    """Name the mistake that makes ``target`` show ``trouble`` on ``case``.

    Troubles that name themselves come first. Otherwise the target is called on the case and on
    larger variants of it, and every suspect of the table is asked whether it explains what came
    back, within the bound. The one that explains most wins, and of those the simplest. Where none
    does, ``probe`` is called for an identity card, and what it says against the kernel is named.
    """
    found = direct(trouble, case)
    if not isinstance(case, AttentionCase):
        return found or Diagnosis(kind="unknown", text=trouble.text)
    if found is not None:
        if trouble.kind not in SECONDARY:
            return found
        with np.errstate(all="ignore"):
            seen, right = looks(target, case, domain)
            # A mistake that other numbers in this shape do not show is not the reason.
            shown = any(_same_shape(one.case, case) for one in seen)
            named = judged(seen, right=right) if shown else None
        return named or _perhaps_inherited(found, target, case, trouble)
    with np.errstate(all="ignore"):  # what a mistake makes of the numbers may well be NaN
        if trouble.kind != "non-finite":
            case = _sharper(target, case)
        return _investigated(target, domain, case, trouble, probe)


def _sharper(target: Target, case: AttentionCase) -> AttentionCase:
    """The case in float32 if it is wrong there too: no rounding to 16 bits hides what it is."""
    if case.dtype not in ("float16", "bfloat16"):
        return case
    other, declared = case.but(dtype="float32"), target.declaration.dtypes
    if (declared and "float32" not in declared) or target.supports(other) is not True:
        return case
    if target.call(attention_inputs(other)).dtype != "float32":
        return case
    sight = look(target, other)
    return other if sight is not None and sight.wrong.any() else case


def _same_shape(one: AttentionCase, other: AttentionCase) -> bool:
    """Whether two cases differ in their numbers alone."""
    numbers = {"values": other.values, "seed": other.seed, "magnitude": other.magnitude}
    return one.but(**numbers) == other


def _perhaps_inherited(
    found: Diagnosis, target: Target, case: AttentionCase, trouble: Trouble
) -> Diagnosis:
    """Point to torch where its own kernel, which many targets end in, is known for the trouble."""
    known = {
        "nan-laundered": case.kv_len < SHORT_ROW,
        "gradient": case.dtype in ("float16", "bfloat16") and case.group_size >= LARGE_GROUP,
    }
    if target.declaration.arrays != "torch" or not known.get(trouble.kind):
        return found
    return Diagnosis(kind=found.kind, text=f"{found.text}; {INHERITED[trouble.kind]}")


def _investigated(
    target: Target,
    domain: Domain,
    case: AttentionCase,
    trouble: Trouble,
    probe: Callable[[], IdentityCard] | None,
) -> Diagnosis:
    """Call the target again, and ask every suspect."""
    if not _repeats(target, case, domain):
        text = "the same call gives different answers, so nothing else can be said of it"
        return Diagnosis(kind="determinism", text=text)
    seen, right = looks(target, case, domain)
    if not seen:
        return _fallback(trouble, case)
    verdict = (
        _strides(target, seen)
        or overflow(seen[0])
        or maximum_kept(target, seen[0])
        or _buried_rows(target, seen, right)
    )
    if verdict is not None:
        return verdict
    rounds = trouble.kind != "future-keys"  # which no rounding lets in
    return (
        judged(seen, right=right, elsewhere=lambda: _elsewhere(target, case, domain))
        or fitted_factor(seen)
        or (merged_by_lse(seen) if rounds else None)
        or (loose_precision(seen, strict=True) if rounds else None)
        or guilty_option(target, seen)
        or _batch_alone(target, seen[0])
        or by_weights(target, seen)
        or (loose_precision(seen) if rounds else None)
        or _nothing_but_nan(seen, right)
        or _by_card(probe, case)
        or by_length(target, seen[0])
        or (loose_precision(seen, strict=True, vacuous=True) if rounds else None)
        or _fallback(trouble, case, seen[0])
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A suspect that is near the first sight: of all sights, how many confirm or refute it.

    shapes: in how many shapes it is confirmed. denied: calls that came back right and would not
    have, were it the cause.
    """

    suspect: Suspect
    confirmed: int
    refuted: int
    shapes: int
    denied: int = 0


def judged(
    seen: list[Sight],
    kind: str | None = None,
    *,
    right: Sequence[Sight] = (),
    elsewhere: Callable[[], Sequence[Sight]] = tuple,
) -> Diagnosis | None:
    """The best standing suspect (of one kind); None where more refutes than confirms it.

    Of those that explain as much of what was ``seen``, one that agrees with the ``right`` calls as
    well; but a mistake on one path only, told in general words, need not. ``elsewhere`` makes right
    calls of other heads, before another map of them is advised, or another layout of everything
    is read off a single case.
    """
    standings = []
    for suspect in suspects(seen[0]):
        if kind not in (None, suspect.kind):
            continue
        first = explains(suspect, seen[0])
        if first is None or not first.near:
            continue
        fits = [first, *(explains(suspect, sight) for sight in seen[1:])]
        if any(_nan_for_a_number(fit, sight) for fit, sight in zip(fits, seen, strict=True)):
            continue
        pairs = [(fit, s) for fit, s in zip(fits, seen, strict=True) if fit is not None]
        confirming = [sight for fit, sight in pairs if fit.near and fit.telling]
        standings.append(
            Standing(
                suspect=suspect,
                confirmed=len(confirming),
                refuted=sum(not fit.near for fit, _ in pairs),
                shapes=len({(s.actual.shape, s.inputs.key.shape) for s in confirming}),
            )
        )
    standings = [s for s in standings if s.confirmed > s.refuted]
    if not standings:
        return None
    most = min(s.refuted - s.confirmed for s in standings)
    best = [s for s in standings if s.refuted - s.confirmed == most]
    if len(best) > 1 and right:
        best = [
            replace(s, denied=sum(foretells_a_fault(s.suspect, one) for one in right)) for s in best
        ]
    nan = bool(np.isnan(seen[0].actual[seen[0].wrong]).all())
    best.sort(key=lambda s: (s.denied, nan and _leaves_nothing(s.suspect, seen[0]), s.suspect.cost))
    if best[0].suspect.kind in ("head-mapping", "layout"):
        others = elsewhere()
        left = [s for s in best if not any(foretells_a_fault(s.suspect, one) for one in others)]
        if not left and best[0].suspect.kind == "layout" and best[0].shapes < 2:
            return None  # one small case says little of every call
        if best[0].suspect.kind == "layout" or not best[0].suspect.declare:
            best = left or best
        right = [*right, *others]
    suspect = best[0].suspect
    return Diagnosis(kind=suspect.kind, text=f"{suspect.sentence}{_advice(suspect, right)}")


def _leaves_nothing(suspect: Suspect, sight: Sight) -> bool:
    """Whether a suspect explains NaN by rows that see no key: another may say where it is from."""
    world = world_of(suspect, sight.inputs)
    return world is not None and bool(world.empty()[sight.wrong].any())


def _nothing_but_nan(seen: list[Sight], right: Sequence[Sight]) -> Diagnosis | None:
    if right or not all(np.isnan(one.actual).all() for one in seen):
        return None
    text = "every output is NaN, on the case and on larger ones with other numbers"
    return Diagnosis(kind="nan-propagation", text=text)


def _nan_for_a_number(fit: Fit | None, sight: Sight) -> bool:
    """Whether all that is wrong is NaN where a suspect has numbers: another cause is at work."""
    return fit is not None and not fit.near and bool(np.isnan(sight.actual[sight.wrong]).all())


def _elsewhere(target: Target, case: AttentionCase, domain: Domain) -> list[Sight]:
    """The calls of a few other head layouts, with and without options, that came back right."""
    plain = without_options(case, domain)
    cases = [*with_other_heads(case, domain), *with_other_heads(plain, domain)]
    cases = [one for one in dict.fromkeys(cases) if target.supports(one) is True]
    sights = [look(target, one) for one in cases]
    return [one for one in sights if one is not None and not one.wrong.any()]


def _advice(suspect: Suspect, right: Sequence[Sight]) -> str:
    """How to declare what may be meant; where it is so in some calls only, nothing helps."""
    if not suspect.declare:
        return ""
    if any(foretells_a_fault(suspect, one) for one in right):
        return ", but in some calls only: others are right as they should be"
    return f"; if that is meant: --declare {suspect.declare}"


def _repeats(target: Target, case: AttentionCase, domain: Domain) -> bool:
    """Whether repeated calls agree, on the case and on its largest variant."""
    cases = [case, *list(variants(case, domain))[-1:]]
    return not any(noisy(target, attention_inputs(one)) for one in cases)


def _strides(target: Target, seen: list[Sight]) -> Diagnosis | None:
    """Right on contiguous tensors with the same numbers."""
    memory = seen[0].inputs.memory
    if memory == "contiguous":
        return None
    plain = look(target, seen[0].case, seen[0].inputs.but(memory="contiguous"))
    if plain is None or plain.wrong.any():
        return None
    text = f"right on contiguous tensors with the same numbers, wrong on {memory} ones"
    named = judged(seen, "strides")
    return Diagnosis(kind="strides", text=text if named is None else f"{text}: {named.text}")


def _buried_rows(target: Target, seen: list[Sight], right: Sequence[Sight]) -> Diagnosis | None:
    """Only rows of huge negative biases are wrong; unless smaller biases are wrong as well."""
    found = finite_minimum_rows(seen)
    if found is None:
        return None
    if (merged := merged_by_lse(seen)) is not None:
        return merged
    smaller = [look(target, one.case, with_small_biases(one.inputs)) for one in (*seen, *right)]
    wrong = [one for one in smaller if one is not None and one.wrong.any()]
    return (judged(wrong) if wrong else None) or found


def _batch_alone(target: Target, sight: Sight) -> Diagnosis | None:
    """Each batch row is right when it is alone."""
    inputs = sight.inputs
    size = inputs.query.shape[0]
    if size < 2:
        return None
    for row in range(size):
        part = slice(row, row + 1)
        mask = inputs.mask
        alone = inputs.but(
            query=inputs.query[part],
            key=inputs.key[part],
            value=inputs.value[part],
            mask=mask if mask is None or mask.shape[0] == 1 else mask[part],
            kv_lengths=None if inputs.kv_lengths is None else inputs.kv_lengths[part],
        )
        seen = look(target, sight.case, alone)
        if seen is None or seen.wrong.any():
            return None
    rows = [int(b) for b in np.flatnonzero(sight.wrong.any(axis=(1, 2, 3)))]
    text = f"batch rows {rows} of {size} are wrong in the batch, and right alone"
    return Diagnosis(kind="batch-dependence", text=text)


def _by_card(probe: Callable[[], IdentityCard] | None, case: AttentionCase) -> Diagnosis | None:
    """What the probes found, where that is about something that the case uses."""
    return None if probe is None else next(faults(probe(), case), None)


def _fallback(trouble: Trouble, case: AttentionCase, sight: Sight | None = None) -> Diagnosis:
    """The kind that the law itself is about, or unknown with what is known."""
    text = trouble.text + (f" ({trouble.where})" if trouble.where else "")
    if trouble.kind == "ignored-option":
        used = options_of(case)
        kind = IGNORED_KINDS.get(used[0], "ignored-option") if used else "ignored-option"
        return Diagnosis(kind=kind, text=text)
    if trouble.kind in FALLBACK:
        return Diagnosis(kind=FALLBACK[trouble.kind], text=text)
    if sight is not None and not np.isfinite(sight.actual[sight.wrong]).all():
        finite = all(
            np.isfinite(x).all() for x in (sight.inputs.query, sight.inputs.key, sight.inputs.value)
        )
        if not finite:
            return Diagnosis(kind="nan-propagation", text=text)
        text += "; a non-finite number appears that no known overflow explains"
    return Diagnosis(kind="unknown", text=text)
