"""Causes in the arithmetic: overflow, rows of finite minima, precision, a fitted factor."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from equivalence.bounds import allowance
from equivalence.compare import compare
from equivalence.diagnosis.evidence import fit, fits_all
from equivalence.diagnosis.imagining import Sight, World, from_scores, full
from equivalence.dtypes import Array, format_of
from equivalence.inputs import AttentionInputs
from equivalence.outcome import Target
from equivalence.probes.precision import CANDIDATES, candidate
from equivalence.profiles import PROFILES
from equivalence.reference import attention
from equivalence.results import Diagnosis

MOST_OF_A_LSE = 2.0**-6  # its rounding error
EXP_LIMIT = {"float64": 709.0, "float32": 88.0, "bfloat16": 88.0, "float16": 11.0}


def overflow(sight: Sight) -> Diagnosis | None:
    """Why a finite computation came out non-finite, or lost its largest scores."""
    inputs, exact = sight.inputs, sight.exact
    if not all(np.isfinite(x).all() for x in (inputs.query, inputs.key, inputs.value)):
        return None
    limit = format_of(inputs.dtype).max_finite
    largest = float(np.abs(exact.dots).max(initial=0.0))
    broken = bool((~np.isfinite(sight.actual) & sight.wrong).any())
    half = limit if inputs.dtype == "float16" else 65504.0
    if largest > half and (broken or _fits_overflown(sight, half)):
        name = "float16" if half == 65504.0 else inputs.dtype
        text = f"q.k goes beyond the largest {name}, {half:g}, before it is scaled"
        return Diagnosis(kind="overflow", text=text)
    if not broken:
        return None
    values = float(np.abs(inputs.value).max(initial=0.0))
    keys = int(exact.seen.max(initial=0))
    if keys * values > limit and values <= limit:
        text = (
            f"the sum of the values overflows {inputs.dtype} ({limit:g}): "
            "it is stored before it is normalised"
        )
        return Diagnosis(kind="overflow", text=text)
    scores = np.where(exact.visible, np.abs(exact.scores), 0.0)
    reach = float(scores[scores < 1e30].max(initial=0.0))
    if reach > EXP_LIMIT[inputs.dtype]:
        limit = EXP_LIMIT[inputs.dtype]
        text = f"exp of a score beyond {limit:g} leaves its range: the maximum is not subtracted"
        return Diagnosis(kind="overflow", text=text)
    return None


def _fits_overflown(sight: Sight, limit: float) -> bool:
    """Whether the output is that of scores whose products beyond ``limit`` are lost or clipped."""
    inputs, dots = sight.inputs, sight.exact.dots
    bias = 0.0 if inputs.bias is None else inputs.bias
    lost = sight.exact.visible & (dots > -limit)
    clipped = inputs.scale_value * np.clip(dots, -limit, limit) + bias
    worlds = (from_scores(inputs, sight.exact.scores, lost), from_scores(inputs, clipped))
    return any(found.near and found.telling for found in (fit(w, sight) for w in worlds))


def maximum_kept(target: Target, sight: Sight) -> Diagnosis | None:
    """Whether one score that exp cannot hold, in every slot alike, ends in something non-finite.

    Asked where a row of huge negative scores is wrong: all its weights are 0 then.
    """
    inputs = sight.inputs
    if not _buried(sight).any() or not inputs.scale_value > 0:
        return None
    score = 800.0 if inputs.dtype == "float64" else 100.0
    number = float(np.sqrt(score / (inputs.scale_value * inputs.query.shape[-1])))
    same = {"query": np.full_like(inputs.query, number), "key": np.full_like(inputs.key, number)}
    outcome = target.call(inputs.but(mask=None, softcap=None, **same))
    if outcome.stored is None or np.isfinite(outcome.output).all():
        return None
    text = (
        f"exp of a score of {score:g} leaves its range, and a row of huge negative scores has no "
        "weights: the maximum is not subtracted"
    )
    return Diagnosis(kind="overflow", text=text)


def _buried(sight: Sight) -> Array:
    """Rows whose every visible key has a huge negative bias: bool ``[B, H, Sq]``."""
    bias = sight.inputs.bias
    if bias is None or sight.inputs.mask is None:
        return np.zeros(sight.wrong.shape[:3], bool)
    low = np.broadcast_to(bias <= -1e3, sight.exact.visible.shape) | ~sight.exact.visible
    return np.asarray(low.all(axis=-1))


def finite_minimum_rows(seen: list[Sight]) -> Diagnosis | None:
    """Wrong in nothing but rows whose every key has a huge negative bias, in every sight."""
    for one in seen:
        wrong = one.wrong.any(axis=-1)
        if not wrong.any() or (wrong & ~_buried(one)).any():
            return None
    sight, bias = seen[0], seen[0].inputs.bias
    assert bias is not None
    wrong = sight.wrong.any(axis=-1)
    held = sight.actual[wrong]
    what = "NaN" if np.isnan(held).any() else "zeros" if not held.any() else f"{held.flat[0]:.4g}"
    lowest = float(np.min(np.where(np.isfinite(bias), bias, 0.0)))
    return Diagnosis(
        kind="fully-masked-row",
        text=(
            f"a row whose keys all have the finite bias {lowest:.4g} holds {what}, "
            "expected the softmax of what is left"
        ),
    )


def with_small_biases(inputs: AttentionInputs) -> AttentionInputs:
    """The same call whose huge negative biases are small ones that differ from key to key."""
    mask = inputs.mask
    if mask is None or mask.dtype == bool:
        return inputs
    huge = np.isfinite(mask) & (mask <= -1e3)
    small = np.round(np.random.default_rng(5).normal(size=mask.shape) * 64) / 64
    return inputs.but(mask=np.where(huge, small, mask))


def loose_precision(
    found: list[Sight], *, strict: bool = False, vacuous: bool = False
) -> Diagnosis | None:
    """The tightest looser profile within whose bound everything lies, where that says much.

    strict: the errors must be no larger than a few roundings make them. vacuous: the bound may say
    little, where nothing else explains such errors.
    """
    dtype = found[0].inputs.dtype
    judged = found[0].profile.name
    names = [n for n in CANDIDATES[dtype] if n != judged]
    if judged in CANDIDATES[dtype]:
        names = list(CANDIDATES[dtype][CANDIDATES[dtype].index(judged) + 1 :])
    return _within(found, names, strict=strict, vacuous=vacuous)


def merged_by_lse(found: list[Sight]) -> Diagnosis | None:
    """Errors as they come of parts of the keys that are weighed by rounded log-sum-exps."""
    if found[0].profile.merges:
        return None
    unit = candidate("split", found[0].inputs.dtype).accumulate_unit(found[0].inputs.dtype)
    sizes = [np.abs(one.exact.scores[one.exact.visible]).max(initial=0.0) for one in found]
    # Beyond that a log-sum-exp says nothing, and whatever came out would be within the bound.
    return _within(found, ("split",)) if max(sizes) * unit < MOST_OF_A_LSE else None


def _within(
    found: list[Sight], names: Sequence[str], *, strict: bool = False, vacuous: bool = False
) -> Diagnosis | None:
    dtype, judged = found[0].inputs.dtype, found[0].profile.name
    for name in names:
        facts = []
        for sight in found:
            allowed = allowance(sight.inputs, sight.exact, candidate(name, dtype))
            facts.append(
                compare(
                    sight.actual,
                    sight.exact.output,
                    allowed,
                    dtype=dtype,
                    rows=sight.exact.seen > 0,
                )
            )
        telling = all(f.passes and (vacuous or not f.vacuous) for f in facts)
        if telling and _looks_like_rounding(found, name, most=3 if strict else 16):
            needed = max(_used(sight) for sight in found)
            declare = f"; --declare profile={name} accepts it" if name in PROFILES else ""
            text = (
                f"errors are up to {needed:.3g} times what profile {judged} allows and within that "
                f"of profile {name}{declare}"
            )
            return Diagnosis(kind="precision", text=text)
    return None


def _looks_like_rounding(found: list[Sight], name: str, *, most: int) -> bool:
    """Whether no error is above ``most`` roundings of a score, or of the largest value."""
    dtype = found[0].inputs.dtype
    profile = candidate(name, dtype)
    unit = max(profile.store_unit(dtype), profile.accumulate_unit(dtype))
    for sight in found:
        spread = np.ptp(sight.inputs.value, axis=(1, 2)).max(initial=0.0)
        size = max(float(spread), float(np.abs(sight.inputs.value).max(initial=0.0)))
        scores = float(np.abs(sight.exact.scores[sight.exact.visible]).max(initial=1.0))
        error = np.abs(sight.actual - sight.exact.output)[sight.wrong].max(initial=0.0)
        if not error <= most * unit * max(1.0, scores) * size:
            return False
    return True


def _used(sight: Sight) -> float:
    with np.errstate(all="ignore"):
        ratio = np.abs(sight.actual - sight.exact.output) / sight.allowed
    return float(np.nan_to_num(ratio[sight.wrong]).max(initial=0.0))


Turn = Callable[[AttentionInputs, float], AttentionInputs | World | None]
FACTORS: dict[str, tuple[str, str, Turn]] = {
    "scale": (
        "scale",
        "scores are scaled by {0:.6g} times the expected scale",
        lambda i, r: i.but(scale=i.scale_value * r),
    ),
    "softcap": (
        "softcap",
        "the softcap acts as {0:.6g} times the given one",
        lambda i, r: None if i.softcap is None else i.but(softcap=i.softcap * r),
    ),
    "sinks": (
        "sinks",
        "the sinks act as {0:.6g} times the given ones",
        lambda i, r: None if i.sinks is None else i.but(sinks=i.sinks * r),
    ),
    "bias": (
        "mask-semantics",
        "the float mask acts {0:.6g} times",
        lambda i, r: None if i.mask is None or i.mask.dtype == bool else i.but(mask=_times(i, r)),
    ),
    "lowered": (
        "mask-semantics",
        "a key that the bool mask hides is only lowered by {0:.4g}",
        lambda i, r: (
            None
            if i.mask is None or i.mask.dtype != bool
            else i.but(mask=np.where(i.mask, 0.0, -r))
        ),
    ),
    "replaced": (
        "mask-semantics",
        "the score of a key that the bool mask hides is set to -{0:.4g}",
        lambda i, r: None if i.mask is None or i.mask.dtype != bool else _set_hidden(i, -r),
    ),
    "alibi": (
        "mask-semantics",
        "the ALiBi slopes act as {0:.6g} times the given ones",
        lambda i, r: None if i.alibi_slopes is None else i.but(alibi_slopes=i.alibi_slopes * r),
    ),
}


def _set_hidden(inputs: AttentionInputs, score: float) -> World:
    unmasked = inputs.but(mask=None)
    assert inputs.mask is not None
    scores = attention(unmasked).scores
    return from_scores(unmasked, np.where(full(inputs, inputs.mask), scores, score))


def _world_at(inputs: AttentionInputs, turn: Turn, ratio: float) -> World | None:
    changed = turn(inputs, ratio)
    if changed is None or isinstance(changed, World):
        return changed
    return World(inputs=changed, exact=attention(changed))


def _times(inputs: AttentionInputs, factor: float) -> Array:
    assert inputs.mask is not None
    return np.where(inputs.mask == -np.inf, -np.inf, np.maximum(inputs.mask, -1e30) * factor)


def fitted_factor(found: list[Sight]) -> Diagnosis | None:
    """One number that, put right, explains everything: found by minimising the worst error."""
    for kind, words, turn in FACTORS.values():
        ratio = _best_ratio(found[-1], turn)
        if ratio is None:
            continue
        worlds = [_world_at(sight.inputs, turn, ratio) for sight in found]
        known = [world for world in worlds if world is not None]
        if len(known) == len(found) and fits_all(known, found):
            return Diagnosis(kind=kind, text=words.format(ratio))
    return None


def _best_ratio(sight: Sight, turn: Turn) -> float | None:
    """The factor with the least squared error: the best of a grid, then Gauss-Newton steps."""

    def error(log_ratio: float) -> Array | None:
        world = _world_at(sight.inputs, turn, float(np.exp(log_ratio)))
        return None if world is None else world.output() - sight.actual

    grid = np.linspace(-3.0, 3.0, 49)  # e**-3 to e**3
    errors = [error(float(x)) for x in grid]
    losses = [np.inf if e is None else float(np.square(e).sum()) for e in errors]
    if not np.isfinite(losses).any():
        return None
    best, step = float(grid[int(np.nanargmin(losses))]), 1e-5
    for _ in range(8):
        here, ahead, behind = error(best), error(best + step), error(best - step)
        assert here is not None
        assert ahead is not None
        assert behind is not None
        slope = (ahead - behind) / (2 * step)
        size = float(np.square(slope).sum())
        if not size > 0:
            break
        best = float(np.clip(best - float((slope * here).sum()) / size, -4.0, 4.0))
    return float(np.exp(best))
