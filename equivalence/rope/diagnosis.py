"""From a counterexample of a rotary embedding to the name of the mistake.

Every suspect is the float64 rotation with one mistake built in. The target is called on the
counterexample and on larger variants of it, and the suspect that explains the counterexample and
is refuted by the fewest others is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from equivalence.dtypes import Array, format_of
from equivalence.errors import InvalidRequest
from equivalence.results import Diagnosis
from equivalence.rope.bounds import allowance
from equivalence.rope.case import RotaryCase
from equivalence.rope.imagining import Suspect, Suspects, with_mistake
from equivalence.rope.inputs import RotaryInputs, rotary_inputs
from equivalence.rope.reference import frequencies
from equivalence.rope.scaling import SWITCHING
from equivalence.rope.subject import RotarySubject
from equivalence.rope.suspects_angles import positions, precisions
from equivalence.rope.suspects_layout import layouts
from equivalence.rope.suspects_scaling import scales
from equivalence.verdict import Trouble

EXPLAINED: Final = 0.95  # of the elements: roundings that tie may fall the other way
LADDER: Final = (1, 16, 255, 1_000, 4_000, 30_000, 65_000, 250_000, 999_000)
DIRECT: Final = {
    "crash": "crash",
    "hang": "crash",
    "memory": "crash",
    "wrong-shape": "wrong-shape",
    "wrong-dtype": "wrong-dtype",
    "input-mutation": "input-mutation",
    "not-repeatable": "determinism",
    "strides": "strides",
    "batch-dependence": "batch-dependence",
    "refusal": "refusal",
    "declaration": "refusal",
}
LASTING: Final = ("not-repeatable", "strides", "batch-dependence")  # what a state may look like


CONDITIONS: Final[tuple[tuple[Callable[[RotaryInputs], Any], Mapping[Any, str]], ...]] = (
    (
        lambda inputs: inputs.pairing,
        {
            "half": "where channels are paired across the half",
            "interleaved": "where channels are paired as neighbours",
        },
    ),
    (
        lambda inputs: inputs.positions.ndim,
        {1: "where batch rows share their positions", 2: "where each batch row has its positions"},
    ),
    (
        lambda inputs: inputs.x.shape[2] > 1,
        {False: "in calls of one token", True: "in calls of several tokens"},
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """One call of the target. wrong: the elements outside their bound."""

    inputs: RotaryInputs
    actual: Array
    wrong: Array


def diagnose(subject: RotarySubject, law: str, case: RotaryCase, trouble: Trouble) -> Diagnosis:
    """Name the mistake that makes the target of ``subject`` break ``law`` on ``case``."""
    if trouble.kind in LASTING and (found := _longest_stays(subject, case)):
        return found
    if trouble.kind in DIRECT:
        return Diagnosis(kind=DIRECT[trouble.kind], text=trouble.text)
    seen = [sight for one in (case, *_variants(case, subject)) if (sight := _look(subject, one))]
    found = _strides(subject, case)
    # A law about two calls may break on a case that is right by itself: another sight is wrong.
    for first in (sight for sight in seen if sight.wrong.any()):
        found = found or _judged(subject, [first, *(s for s in seen if s is not first)])
    unknown = Diagnosis(kind="unknown", text=trouble.text)
    return found or _longest_stays(subject, case) or _far_positions(subject, case) or unknown


def _look(subject: RotarySubject, case: RotaryCase, *, again: bool = False) -> Sight | None:
    if subject.target.supports(case) is not True:
        return None
    inputs = rotary_inputs(case)
    outcome = subject.call_again(inputs) if again else subject.call(inputs)
    if outcome.stored is None or outcome.stored.shape != inputs.x.shape:
        return None
    with np.errstate(invalid="ignore"):
        error = np.abs(outcome.output - subject.exact(inputs).output)
    wrong = ~(error <= subject.allowance(inputs).allowed)
    return Sight(inputs=inputs, actual=outcome.output, wrong=wrong)


def _variants(case: RotaryCase, subject: RotarySubject) -> Iterator[RotaryCase]:
    """Larger cases of the same kind, on which mistakes that look alike come apart."""
    domain = subject.domain
    wide = [size for size in (16, 8, 32, 64) if size in domain.head_dims]
    shapes: dict[str, Any] = {"values": "normal", "seed": 1, "magnitude": 1.0}
    if wide:
        partial = case.turning < case.head_dim
        shapes |= {"head_dim": wide[0], "rotary_dim": wide[0] // 2 if partial else None}
    tokens = max(case.seq_len, min(4, domain.seq_len[1]))
    changes: list[dict[str, Any]] = [{"seq_len": tokens}]
    changes += [
        {"seq_len": tokens, "start": start, "row_step": 0, "step": step}
        for start, step in ((1, 1), (3, 7), (300, 1), (5_000, 1))
    ]
    changes += [{"start": start, "seq_len": 1} for start in (7, 2_050, 65_600)]
    if domain.by_row and domain.batch_size[1] > 1:
        changes.append({"batch_size": 2, "seq_len": tokens, "row_step": 9, "start": 2})
        changes.append({"batch_size": 2, "seq_len": tokens, "padding": 2, "start": 2})
    others = [pairing for pairing in domain.pairings if pairing != case.pairing]
    changes += [{"pairing": pairing, "start": start} for pairing in others for start in (1, 300)]
    if case.num_heads > 1:
        changes.append({"seq_len": min(case.num_heads, domain.seq_len[1])})
    if case.scaling is not None:
        longer = {"original_max_position_embeddings": 64, "factor": 4.0}
        if case.scaling.rope_type == "linear":
            longer = {"factor": 4.0}
        if case.scaling.rope_type != "default":
            other = case.scaling.but(**longer)
            changes += [{"scaling": other, "seq_len": tokens, "start": s} for s in (3, 60, 500)]
            changes.append({"seq_len": domain.seq_len[1], "start": 500})
        if case.scaling.rope_type == "yarn":  # a ramp that ends late, and a factor that is given
            late = {"original_max_position_embeddings": 1 << 20, "factor": 4.0}
            changes += [
                {"scaling": case.scaling.but(**more), "seq_len": tokens, "start": 3}
                for more in (late, {"attention_factor": 1.5, **longer})
            ]
    for change in changes:
        try:
            variant = case.but(**{**shapes, **change})
        except InvalidRequest:
            continue
        if variant.last_position <= domain.furthest:
            yield variant


def _suspects(subject: RotarySubject, inputs: RotaryInputs) -> Suspects:
    takes_pairing = "interleaved" in subject.target.options
    yield from positions(inputs)
    yield from scales(inputs)
    yield from layouts(inputs, takes_pairing=takes_pairing)
    yield from precisions(inputs, subject.declared.tables or "float32")


def _judged(subject: RotarySubject, seen: list[Sight]) -> Diagnosis | None:
    """The suspect that stands best; None where none explains the counterexample."""
    best: tuple[int, int, Suspect] | None = None
    for suspect in _suspects(subject, seen[0].inputs):
        if _explains(subject, suspect, seen[0]) is not True:
            continue
        answers = [_explains(subject, suspect, sight) for sight in seen[1:]]
        standing = answers.count(False), -answers.count(True)
        if best is None or standing < best[:2]:
            best = (*standing, suspect)
    if best is None or (best[0] > 0 and best[1] == 0):
        return None
    suspect = best[2]
    meant = f"; if that is meant: --declare {suspect.declare}" if suspect.declare else ""
    where = _where(subject, suspect, seen)
    return Diagnosis(kind=suspect.kind, text=f"{suspect.sentence}{where}{meant}")


def _where(subject: RotarySubject, suspect: Suspect, seen: list[Sight]) -> str:
    """In words, what all calls with the mistake have in common, and those without it do not."""
    told = [(sight, _explains(subject, suspect, sight)) for sight in seen]
    made = [sight.inputs for sight, explained in told if explained and sight.wrong.any()]
    not_made = [s.inputs for s, explained in told if explained is False and not s.wrong.any()]
    for fact, words in CONDITIONS:
        values = {fact(inputs) for inputs in made}
        if len(values) == 1 and not_made and values.isdisjoint(fact(i) for i in not_made):
            return f", {words[values.pop()]}; other calls are right"
    return ""


def _explains(subject: RotarySubject, suspect: Suspect, sight: Sight) -> bool | None:
    """Whether a call came back as the mistake would have it; None where it makes no sense."""
    try:
        imagined = suspect.imagine(sight.inputs)
    except InvalidRequest:
        return None
    if imagined is None:
        return None
    rotation, inputs = imagined.rotation, imagined.inputs
    profile = subject.profile(inputs.dtype)
    allowed = allowance(inputs, rotation, profile, subject.declared.tables).allowed
    predicted = np.where(rotation.moves, rotation.output, imagined.passed * inputs.x)
    if imagined.passed != 1.0:
        unit = format_of(inputs.dtype).unit_roundoff
        allowed = np.where(rotation.moves, allowed, 4 * unit * np.abs(predicted))
    if imagined.order is not None:
        predicted, allowed = predicted[..., imagined.order], allowed[..., imagined.order]
    with np.errstate(invalid="ignore"):
        close = np.abs(sight.actual - predicted) <= allowed
    telling = close[sight.wrong] if sight.wrong.any() else close
    return bool(close.mean() >= EXPLAINED and telling.mean() >= EXPLAINED)


def _strides(subject: RotarySubject, case: RotaryCase) -> Diagnosis | None:
    """Right on contiguous tensors with the same numbers."""
    if case.memory == "contiguous":
        return None
    plain = _look(subject, case.but(memory="contiguous"))
    if plain is None or plain.wrong.any():
        return None
    text = f"right on contiguous tensors with the same numbers, wrong on {case.memory} ones"
    return Diagnosis(kind="strides", text=text)


def _longest_stays(subject: RotarySubject, case: RotaryCase) -> Diagnosis | None:
    """After the longest call there is, a call has the frequencies of that length."""
    if case.scaling is None or case.scaling.rope_type not in SWITCHING:
        return None
    before = _look(subject, case, again=True)
    alone = {"batch_size": 1, "seq_len": 1, "row_step": 0, "padding": 0}
    longest = _look(subject, case.but(start=subject.domain.furthest, **alone), again=True)
    after = _look(subject, case, again=True)
    if before is None or longest is None or after is None or not after.wrong.any():
        return None
    length = longest.inputs.length
    stays = Suspect(
        kind="rotary-scaling",
        sentence="frequencies stay those of the longest call so far: a shorter one later does not "
        "set them back",
        imagine=lambda i: with_mistake(i, omega=frequencies(i.turning, i.theta, i.scaling, length)),
    )
    lasting = case.scaling.rope_type == "dynamic" or not np.array_equal(before.actual, after.actual)
    if not lasting or not _explains(subject, stays, after):
        return None
    return Diagnosis(kind=stays.kind, text=stays.sentence)


def _far_positions(subject: RotarySubject, case: RotaryCase) -> Diagnosis | None:
    """Right near the start and wrong far from it: the angle is too coarse."""
    first_wrong = last_right = 0
    for start in LADDER:
        if start > subject.domain.furthest:
            break
        near = case.but(start=start, step=1, row_step=0, padding=0, seq_len=1, scaling=None)
        sight = _look(subject, near.but(values="normal", per_row=case.by_row))
        if sight is None:
            return None
        if sight.wrong.any():
            first_wrong = first_wrong or start
        elif first_wrong:
            return None
        else:
            last_right = start
    if not first_wrong or not last_right:
        return None
    text = (
        f"right at position {last_right:,}, wrong at {first_wrong:,} and beyond: "
        f"angles are coarser than {subject.declared.tables or 'float32'}"
    )
    return Diagnosis(kind="rotary-precision", text=text)
