"""From a counterexample to a named mistake: which wrong reference gives these very numbers?

The failing case and a few richer ones are asked again; a mistake is named only where it explains
every answer within its bound, and at least one answer that the right reference does not explain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np

from equivalence.bounds import Allowance
from equivalence.dtypes import Array
from equivalence.latent.case import MlaCase
from equivalence.latent.domain import MlaDomain
from equivalence.latent.ignored import scale_is_ignored
from equivalence.latent.inputs import LatentInputs
from equivalence.latent.mistakes import Mistake, evaluated, positions, projections, scales
from equivalence.latent.mistakes_layout import fused_parts, rotary_parts, value_addresses
from equivalence.latent.mistakes_operands import operands
from equivalence.latent.reference import per_head
from equivalence.latent.subject import MlaSubject
from equivalence.latent.trials import sized
from equivalence.profiles import LOOSENING, profile_for, profile_named
from equivalence.results import Diagnosis
from equivalence.verdict import Trouble

BY_TROUBLE: Final = {
    "crash": "crash",
    "hang": "crash",
    "memory": "crash",
    "wrong-shape": "wrong-shape",
    "wrong-dtype": "wrong-dtype",
    "input-mutation": "input-mutation",
    "strides": "strides",
    "hidden-keys": "padding",
    "not-repeatable": "determinism",
    "nan-leak": "nan-propagation",
    "nan-laundered": "nan-propagation",
    "masked-rows": "fully-masked-row",
    "declaration": "refusal",
    "refusal": "refusal",
    "bytes": "materialisation",
}
ACCURATE: Final = ("f64", "f64_split", "f32", "split")  # of float64 and float32
SCALE_LAW: Final = "mla-scale-follows-queries"
# The bounds are those of the right reference; a wrong one has larger scores, and larger errors.
SLACK: Final = 8.0
FACTORS: Final = np.concatenate([np.geomspace(1 / 64, 64, 241), [0.0]])
ROUNDS: Final = 6
# A fitted factor closer to 1 than this is no mistake, but rounding.
NO_FACTOR: Final = 0.01


Attempt: TypeAlias = "Callable[[list[_Answer], list[_Answer]], Diagnosis | None]"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """What the target said to one case, and what it should have said."""

    inputs: LatentInputs
    output: Array
    expected: Array
    allowed: Array
    judged: Array

    def off(self, predicted: Array, *, allowed: Array | None = None) -> float:
        """Worst distance of the answer from ``predicted``, in bounds."""
        allowed = self.allowed if allowed is None else allowed
        with np.errstate(invalid="ignore", divide="ignore"):
            error = np.abs(self.output - predicted)
            used = np.where(error == 0, 0.0, error / allowed)
        return float(np.where(self.judged, np.nan_to_num(used, nan=np.inf), 0.0).max(initial=0.0))

    def coarse(self) -> Array:
        """What a fit may be off by: it has some six digits, whatever the format."""
        least = 1e-6 * float(np.abs(self.expected).max(initial=0.0))
        return np.asarray(np.maximum(self.allowed, least))


def diagnose(subject: MlaSubject, law: str, case: MlaCase, trouble: Trouble) -> Diagnosis:
    """Name the mistake behind ``trouble``, or say "unknown" with the fact itself."""
    if trouble.kind in BY_TROUBLE:
        return Diagnosis(kind=BY_TROUBLE[trouble.kind], text=trouble.text)
    if trouble.kind == "non-finite":
        return _non_finite(subject, case, trouble)
    if (found := _memory(subject, case)) is not None:
        return found
    answers = list(_answers(subject, case))
    wrong = [a for a in answers if a.off(a.expected) > 1]
    if (found := _ignored_scale(subject, law, case, answers)) is not None:
        return found
    if wrong:
        precision = partial(_precision, subject, case, trouble)
        # In 16 bits, a factor fits what is only rounded; where bounds are small, none does.
        small = all(
            a.inputs.dtype in ("float64", "float32")
            and subject.profile(a.inputs.dtype).name in ACCURATE
            for a in wrong
        )
        guesses = (*GUESSES, precision) if small else (precision, *GUESSES)
        attempts: tuple[Attempt, ...] = (_named, *guesses)
        for attempt in attempts:
            if (found := attempt(answers, wrong)) is not None:
                return found
    if trouble.kind == "future-keys":
        return Diagnosis(kind="causal-alignment", text=trouble.text)
    if trouble.kind == "batch-dependence":
        return Diagnosis(kind="batch-dependence", text=trouble.text)
    if _ignores_scale(subject, answers):
        return _not_read()
    return Diagnosis(kind="unknown", text=trouble.text)


def _answers(subject: MlaSubject, case: MlaCase) -> Iterator[_Answer]:
    for asked in _sights(subject.domain, case):
        if subject.target.supports(asked) is not True:
            continue
        inputs = subject.inputs(asked)
        outcome = subject.call(inputs)
        if subject.unusable(inputs, outcome) is not None:
            continue
        exact, allowance = subject.exact(inputs), subject.allowance(inputs)
        judged = np.broadcast_to(
            (allowance.in_domain & (exact.seen > 0))[..., None], outcome.output.shape
        )
        if np.isfinite(outcome.output[judged]).all():
            yield _Answer(
                inputs=inputs,
                output=outcome.output,
                expected=exact.output,
                allowed=allowance.allowed,
                judged=judged,
            )


def _sights(domain: MlaDomain, case: MlaCase) -> Iterator[MlaCase]:
    """The failing case, and cases on which different mistakes give different numbers.

    In float32 where the target takes it: there, bounds are small and mistakes far apart.
    """
    yield case
    heads = max(min(3, domain.num_heads[1]), case.num_heads)
    plain = MlaCase(values="normal", weights="realistic", magnitude=2.0, seed=1)
    for dtype in dict.fromkeys(("float32", case.dtype)):
        for number, sizes in enumerate(((4, 3, 8, 4), (4, 4, 4, 4), (2, 3, 5, 4))):
            if domain.only_sizes is not None and sizes not in domain.only_sizes:
                sizes = domain.only_sizes[number % len(domain.only_sizes)]
            asked = sized(plain.but(dtype=dtype, seed=number), sizes)
            for q_len, kv_len in (
                ((1, 13), (3, 9), (4, 4)) if number else ((1, 131), (3, 9), (4, 4))
            ):
                if domain.q_lens is not None:
                    q_len = min(domain.q_lens, key=lambda n, q=q_len: abs(n - q))  # type: ignore[misc]
                if domain.kv_lens is not None:
                    kv_len = min(domain.kv_lens, key=lambda n, k=kv_len: abs(n - k))  # type: ignore[misc]
                yield asked.but(
                    batch_size=min(2, domain.batch_size[1]),
                    num_heads=heads if number < 2 else max(heads, min(4, domain.num_heads[1])),
                    q_len=q_len,
                    kv_len=kv_len,
                )


def _mistakes() -> Iterator[Mistake]:
    """All known mistakes, the more specific first."""
    yield from scales()
    yield from projections()
    yield from rotary_parts()
    yield from fused_parts()
    yield from value_addresses()
    yield from positions()
    yield from operands()


def _ignored_scale(
    subject: MlaSubject, law: str, case: MlaCase, answers: list[_Answer]
) -> Diagnosis | None:
    """The scale is not read, and some scale of its own explains each wrong answer."""
    off = [(a, a.off(a.expected, allowed=a.coarse())) for a in answers]
    wrong = any(used > 1 for _, used in off)
    asked = law == SCALE_LAW or case.scale is not None
    if not (wrong or asked) or not _ignores_scale(subject, answers):
        return None
    # Answers this close to the right one would be fitted by the scale that was given.
    if any(used > SLACK and _fitted([a], "scale") is None for a, used in reversed(off)):
        return None
    # A width is told only where it fits as well as the dtype allows, not as a loose profile does.
    strict = [
        replace(a, allowed=subject.bound(a.inputs, subject.exact(a.inputs), profile).allowed)
        for a in answers
        for profile in (profile_for(a.inputs.dtype, None),)
    ]
    own = _named(strict, [a for a in strict if a.off(a.expected) > 1], scales())
    return _not_read(f"; {own.text}" if own is not None else "")


def _ignores_scale(subject: MlaSubject, answers: list[_Answer]) -> bool:
    return subject.domain.scale and scale_is_ignored(subject, (a.inputs for a in answers))


def _not_read(more: str = "") -> Diagnosis:
    text = f"the given scale is ignored: twice the scale gives the same output{more}"
    return Diagnosis(kind="mla-scale", text=text)


def _named(
    answers: list[_Answer], wrong: list[_Answer], mistakes: Iterable[Mistake] | None = None
) -> Diagnosis | None:
    found: list[tuple[float, int, Mistake]] = []
    for place, mistake in enumerate(_mistakes() if mistakes is None else mistakes):
        worst = _explains(mistake, answers, wrong)
        if worst is not None:
            found.append((round(worst, 1), place, mistake))
    if not found:
        return None
    best = min(found, key=lambda entry: entry[:2])[2]
    return Diagnosis(kind=best.kind, text=best.text)


def _explains(mistake: Mistake, answers: list[_Answer], wrong: list[_Answer]) -> float | None:
    """How far off the explained answers are at worst, in bounds; None where it does not explain."""
    worst, telling = 0.0, False
    for answer in answers:
        predicted = mistake.predict(answer.inputs)
        if predicted is None:
            continue
        off = answer.off(predicted)
        if off > SLACK:
            return None
        worst = max(worst, off)
        apart = bool((np.abs(predicted - answer.expected) > answer.allowed)[answer.judged].any())
        closer = off < answer.off(answer.expected)
        telling |= apart and closer and any(answer is one for one in wrong)
    return worst if telling else None


def _fitted(answers: list[_Answer], keyword: str) -> float | None:
    """The one number for ``keyword`` of ``evaluated`` that explains every answer, if any."""
    known = [(a, a.coarse(), *_projected(a.inputs)) for a in answers]

    def worst(factor: float, enough: float) -> float:
        """The worst distance from any answer, or the first that is not below ``enough``."""
        found = 0.0
        for a, allowed, keys, values in known:
            argument = _argument(a.inputs, keyword, factor)
            predicted = evaluated(a.inputs, keys=keys, values=values, **argument)
            found = max(found, a.off(predicted, allowed=allowed))
            if found >= enough:
                break
        return found

    def nearest(factors: Iterable[float]) -> tuple[float, float]:
        """The first of the factors with the least worst distance, and that distance."""
        best, least = None, math.inf
        for factor in map(float, factors):
            found = worst(factor, least)
            if best is None or found < least:
                best, least = factor, found
        assert best is not None
        return best, least

    best, least = nearest(FACTORS)
    if best == 0.0:
        return 0.0 if least <= SLACK else None
    width = 1.04
    for _ in range(ROUNDS):
        best, least = nearest(best * np.geomspace(1 / width, width, 21))
        width = width ** (1 / 8)
    return best if least <= SLACK and abs(best - 1) > NO_FACTOR else None


def _projected(inputs: LatentInputs) -> tuple[Array, Array]:
    """The keys and the values of every head."""
    return per_head(inputs.latent, inputs.w_uk), per_head(inputs.latent, inputs.w_uv)


def _argument(inputs: LatentInputs, keyword: str, factor: float) -> dict[str, Any]:
    return {keyword: factor * inputs.scale_value if keyword == "scale" else factor}


def _factor(answers: list[_Answer], wrong: list[_Answer]) -> Diagnosis | None:
    factor = _fitted(answers, "scale")
    if factor is None:
        return None
    return Diagnosis(
        kind="mla-scale",
        text=f"the scores are multiplied by {factor:.4g} times the scale{_as_mscale(factor)}",
    )


def _as_mscale(factor: float) -> str:
    """The YaRN factor and mscale of which this is the temperature, or the square of it."""
    for stretch in (4, 8, 16, 32, 40):
        for mscale in (1.0, 0.707, 0.5):
            once = 0.1 * mscale * float(np.log(stretch)) + 1.0
            for power, square in ((1, ""), (2, " squared"), (-1, " undone"), (-2, " undone twice")):
                if abs(factor / once**power - 1) < 1e-3:
                    return f": YaRN's temperature for factor={stretch}, mscale={mscale:g}{square}"
    return ""


def _rotary_factor(answers: list[_Answer], wrong: list[_Answer]) -> Diagnosis | None:
    factor = _fitted(answers, "rotary_factor")
    if factor is None:
        return None
    return Diagnosis(
        kind="rotary-scaling",
        text=f"the rotary part of the scores counts {factor:.4g} times{_as_mscale(factor)}",
    )


def _empty_slices(answers: list[_Answer], wrong: list[_Answer]) -> Diagnosis | None:
    """Rows that are right up to e^lse / (e^lse + k): k empty slices were merged with weight 1."""
    counts: set[int] = set()
    for answer in answers:
        scale, inputs = answer.inputs.scale_value, answer.inputs
        dots = inputs.query_content @ per_head(inputs.latent, inputs.w_uk).swapaxes(-1, -2)
        dots = dots + inputs.query_rotary @ inputs.key_rotary[:, None].swapaxes(-1, -2)
        with np.errstate(over="ignore"):
            mass = np.where(inputs.visible, np.exp(scale * dots), 0.0).sum(axis=-1)
        square = (answer.expected**2).sum(axis=-1)
        share = (answer.output * answer.expected).sum(axis=-1) / np.where(square > 0, square, 1.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            number = np.nan_to_num(np.round(mass * (1.0 / share - 1.0)), posinf=0.0, neginf=0.0)
        number = np.where(np.isfinite(mass), np.clip(number, 0, 64), 0)
        kept = np.where(np.isfinite(mass) & (mass > 0), mass, 1.0)
        kept = np.where(number > 0, kept / (kept + number), 1.0)
        if answer.off(answer.expected * kept[..., None]) > SLACK:
            return None
        counts |= {int(n) for n in np.unique(number)}
    if not counts - {0} or len(wrong) < 2:  # one number fits many a single answer
        return None
    return Diagnosis(
        kind="lse-merge",
        text=f"rows lose weight as if up to {max(counts)} slices without a visible token were "
        "merged with a log-sum-exp of 0; an empty slice has -inf",
    )


def _memory(subject: MlaSubject, case: MlaCase) -> Diagnosis | None:
    """Wrong on these strides, right on contiguous tensors."""
    if case.memory == "contiguous":
        return None
    inputs = subject.inputs(case)
    plain = inputs.but(memory="contiguous")
    if subject.sound(inputs, subject.call(inputs)) or not subject.sound(plain, subject.call(plain)):
        return None
    return Diagnosis(
        kind="padding" if case.memory == "cache" else "strides",
        text=f"wrong where memory is {case.memory!r}, right on contiguous tensors",
    )


def _allows(bound: Allowance, answer: _Answer) -> bool:
    """Whether a looser bound holds, and could have failed on most elements."""
    telling = (bound.furthest <= answer.allowed) | (bound.allowed < bound.furthest)
    return answer.off(answer.expected, allowed=bound.allowed) <= 1 and bool(telling.mean() > 0.5)


def _precision(
    subject: MlaSubject,
    case: MlaCase,
    trouble: Trouble,
    answers: list[_Answer],
    wrong: list[_Answer],
) -> Diagnosis | None:
    """The first looser profile that allows everything that was answered, and the trouble too."""
    dtype = wrong[0].inputs.dtype
    own = subject.profile(dtype)
    if any(answer.inputs.dtype != dtype for answer in wrong):
        return None
    later = LOOSENING[LOOSENING.index(own.name) + 1 :] if own.name in LOOSENING else ()
    names = later if dtype in ("float16", "bfloat16") else ("bf16_inside",)
    for name in names:
        profile = profile_named(name)
        failing = subject.inputs(case)
        most = subject.bound(failing, subject.exact(failing), profile).allowed.max(initial=0.0)
        # Two outputs that a law compares are each allowed their bound.
        if trouble.error is not None and trouble.error > 2 * most:
            continue
        if all(
            _allows(subject.bound(a.inputs, subject.exact(a.inputs), profile), a) for a in wrong
        ):
            return Diagnosis(
                kind="precision",
                text=f"rounds more than {own.name} allows; profile {name} holds "
                f"(--declare profile={name})",
            )
    return None


def _non_finite(subject: MlaSubject, case: MlaCase, trouble: Trouble) -> Diagnosis:
    inputs = subject.inputs(case)
    largest = float(np.abs(subject.exact(inputs).dots).max(initial=0.0))
    keys = float(np.abs(per_head(inputs.latent, inputs.w_uk)).max(initial=0.0))
    values = float(np.abs(per_head(inputs.latent, inputs.w_uv)).max(initial=0.0))
    sizes = f"q.k reaches {largest:.3g}, W_UK c {keys:.3g}, W_UV c {values:.3g}"
    return Diagnosis(kind="overflow", text=f"{trouble.text}, where {sizes}")


GUESSES: Final = (_factor, _rotary_factor, _empty_slices)
