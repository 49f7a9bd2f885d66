"""Laws of rotary embeddings: what a rotation by position is, whoever computes it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from equivalence.bounds import Allowance
from equivalence.compare import compare
from equivalence.dtypes import Array, format_of, rounded
from equivalence.laws.law import law
from equivalence.rope.bounds import norm_allowance
from equivalence.rope.case import RotaryCase
from equivalence.rope.domain import RotaryDomain
from equivalence.rope.inputs import RotaryInputs
from equivalence.rope.reference import pairs
from equivalence.rope.scaling import SWITCHING
from equivalence.rope.subject import RotarySubject
from equivalence.verdict import HELD, INAPPLICABLE, Trouble, Verdict, broken

SHIFTS: Final = (1, 255, 2_048, 65_536)


@law("rotary-agrees-with-float64", kind="rotary")
def agrees_with_float64(case: RotaryCase, subject: RotarySubject) -> Verdict:
    """Every output is that of a float64 table of angles, within the derived error bound."""
    inputs = subject.inputs(case)
    return subject.judge(inputs, subject.call(inputs))


def _one_hot(case: RotaryCase, domain: RotaryDomain) -> RotaryCase | None:
    """One channel a token, away from position 0, where nothing moves."""
    if "one_hot" not in domain.values:
        return None
    changes: dict[str, object] = {}
    if case.values != "one_hot":
        changes |= {"values": "one_hot", "magnitude": 1.0}
    if case.start == 0:
        changes["start"] = 1
    return case.but(**changes) if changes else case


@law("only-declared-channels-move", kind="rotary", adapt=_one_hot)
def only_declared_channels_move(case: RotaryCase, subject: RotarySubject) -> Verdict:
    """A channel moves itself and its declared partner, and one past rotary_dim moves nothing."""
    inputs = subject.inputs(case)
    outcome = subject.call(inputs)
    if subject.unusable(inputs, outcome) is not None:
        return INAPPLICABLE
    exact = subject.exact(inputs)
    held = inputs.x != 0
    expected = held | (held[..., exact.partner] & exact.moves)
    reached = ~(np.abs(outcome.output) <= subject.allowance(inputs).allowed)
    stray = reached & ~expected
    fixed = held & ~exact.moves & (outcome.output != inputs.x)
    wrong = stray | fixed
    if not wrong.any():
        return HELD
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    source = int(np.argmax(held[index[:3]]))
    partner = int(exact.partner[source])
    rule = f"its partner is {partner}" if exact.moves[source] else "it must not move"
    return broken(
        Trouble(
            kind="disagreement",
            text=f"channel {source} reaches channel {index[3]} at output{list(index)}; {rule}",
            index=index,
            got=float(outcome.output[index]),
            expected=float(exact.output[index]),
            error=float(abs(outcome.output[index] - exact.output[index])),
            allowed=float(subject.allowance(inputs).allowed[index]),
            outside=int(wrong.sum()),
            total=wrong.size,
            profile=subject.profile(inputs.dtype).name,
        )
    )


@law("norms-are-kept", kind="rotary")
def norms_are_kept(case: RotaryCase, subject: RotarySubject) -> Verdict:
    """Each pair keeps its length, times the attention factor, however far the position is."""
    inputs = subject.inputs(case)
    outcome = subject.call(inputs)
    if not subject.sound(inputs, outcome):
        return INAPPLICABLE
    first, second = pairs(inputs.turning, inputs.pairing)
    actual = np.hypot(outcome.output[..., first], outcome.output[..., second])
    lengths = np.hypot(inputs.x[..., first], inputs.x[..., second])
    expected = subject.exact(inputs).factor * lengths
    limits = norm_allowance(
        inputs, subject.exact(inputs), subject.profile(inputs.dtype), subject.declared.tables
    )
    facts = compare(actual, expected, limits, dtype=inputs.dtype)
    return subject.plain_verdict(facts, inputs, kind="disagreement", than="the length of its pair")


def _at_zero(case: RotaryCase, domain: RotaryDomain) -> RotaryCase | None:
    """Every token at position 0."""
    changes: dict[str, object] = {}
    if case.start:
        changes["start"] = 0
    if case.step and case.seq_len > 1:
        changes["step"] = 0
    if case.row_step and case.batch_size > 1:
        changes |= {"row_step": 0, "per_row": True}
    return case.but(**changes) if changes else case


@law("position-zero-is-identity", kind="rotary", adapt=_at_zero)
def position_zero_is_identity(case: RotaryCase, subject: RotarySubject) -> Verdict:
    """At position 0 nothing turns: the output is the input, times the attention factor."""
    inputs = subject.inputs(case)
    outcome = subject.call(inputs)
    if (problem := subject.unusable(inputs, outcome)) is not None:
        return problem
    exact = subject.exact(inputs)
    expected = np.where(exact.moves, exact.factor * inputs.x, inputs.x)
    return subject.same(inputs, outcome.output, expected, than="its input at position 0")


def _fixed_scaling(case: RotaryCase, domain: RotaryDomain) -> RotaryCase | None:
    """A scaling that does not look at the length, and positions with room to move."""
    changes: dict[str, object] = {}
    if case.scaling is not None and case.scaling.rope_type in SWITCHING:
        changes["scaling"] = None
    return case.but(**changes) if changes else case


@law("scores-depend-on-offset-alone", kind="rotary", adapt=_fixed_scaling)
def scores_depend_on_offset_alone(case: RotaryCase, subject: RotarySubject) -> Verdict:
    """A query and a key score the same when both move by the same number of positions."""
    inputs = subject.inputs(case)
    key = _key_beside(case, subject)
    room = subject.domain.furthest - inputs.length
    shifts = [shift for shift in SHIFTS if shift <= room]
    if not shifts:
        return INAPPLICABLE
    shift = shifts[case.seed % len(shifts)]
    turned = subject.call(inputs)
    if not subject.sound(inputs, turned):
        return INAPPLICABLE
    four = [turned]
    moved = [part.but(positions=part.positions + shift) for part in (inputs, key)]
    for part in (key, *moved):
        outcome = subject.call(part)
        if (problem := subject.unusable(part, outcome)) is not None:
            return problem
        four.append(outcome)
    parts = (inputs, key, *moved)
    return _same_scores(
        subject,
        [(parts[0], four[0].output, parts[1], four[1].output)],
        [(parts[2], four[2].output, parts[3], four[3].output)],
        than=f"its own score after both moved by {shift:,} positions",
    )


def _key_beside(case: RotaryCase, subject: RotarySubject) -> RotaryInputs:
    """A key for the query of ``case``, the same one for every law that asks."""
    inputs = subject.inputs(case)
    return subject.once("key beside", inputs, lambda: _other_numbers(inputs, case.seed))


def _other_numbers(inputs: RotaryInputs, seed: int) -> RotaryInputs:
    """Other numbers of the same size at the same positions."""
    rng = np.random.default_rng([seed, 61])
    size = max(float(np.abs(inputs.x).mean()), 2.0**-14)
    return inputs.but(x=rounded(size * rng.normal(size=inputs.x.shape), inputs.dtype))


Turned = tuple[RotaryInputs, Array, RotaryInputs, Array]


def _same_scores(
    subject: RotarySubject, one: list[Turned], other: list[Turned], *, than: str
) -> Verdict:
    """Whether q . k ``[B, H, S, S]`` of two turned pairs agree within what their bounds allow."""
    if not all(np.isfinite(part).all() for four in (*one, *other) for part in four[1::2]):
        return INAPPLICABLE  # an overflow, which agreement judges
    scores, off = [], []
    for query_inputs, query, key_inputs, key in (*one, *other):
        scores.append(np.matmul(query, key.swapaxes(-1, -2)))
        slack = subject.allowance(query_inputs).allowed
        key_slack = subject.allowance(key_inputs).allowed
        # |q'.k' - q.k| <= |q'| B_k + B_q |k'| + B_q B_k
        off.append(
            np.matmul(np.abs(query), key_slack.swapaxes(-1, -2))
            + np.matmul(slack, (np.abs(key) + key_slack).swapaxes(-1, -2))
            + 2.0**-50 * np.matmul(np.abs(query), np.abs(key).swapaxes(-1, -2))
        )
    inputs = one[0][0]
    size = np.matmul(np.abs(one[0][1]), np.abs(one[0][3]).swapaxes(-1, -2))
    both = Allowance(
        allowed=off[0] + off[1] + 2.0**-1000,
        furthest=2.0 * size,
        natural=format_of(inputs.dtype).unit_roundoff * size,
        in_domain=subject.allowance(inputs).in_domain,
    )
    facts = compare(scores[0], scores[1], both, dtype="float64")
    verdict = subject.plain_verdict(facts, inputs, kind="disagreement", than=than)
    if verdict.trouble is None:
        return verdict
    query_slot, key_slot = facts.index[2:]
    text = f"the score of query {query_slot} and key {key_slot} disagrees with {than}"
    return broken(replace(verdict.trouble, text=text, where="", index=facts.index))


@law("rotations-compose", kind="rotary", adapt=_fixed_scaling)
def rotations_compose(case: RotaryCase, subject: RotarySubject) -> Verdict:
    """Turning by p and then by q is turning by p + q."""
    inputs = subject.inputs(case)
    exact = subject.exact(inputs)
    more = 1 + case.seed % 300
    if inputs.length + more > subject.domain.furthest:
        return INAPPLICABLE
    first = subject.call(inputs)
    if not subject.sound(inputs, first) or not np.isfinite(first.output).all():
        return INAPPLICABLE
    again = inputs.but(x=first.output, positions=np.full_like(inputs.positions, more))
    scaled = np.where(exact.moves, exact.factor, 1.0)
    whole = inputs.but(positions=inputs.positions + more)
    second, at_once = subject.call(again), subject.call(whole)
    for part, outcome in ((again, second), (whole, at_once)):
        if (problem := subject.unusable(part, outcome)) is not None:
            return problem
    # What the first turn was off is turned with the rest.
    own = subject.allowance(inputs).allowed
    turn = subject.exact(again)
    carried = np.abs(turn.cosine) * own + np.abs(turn.sine) * own[..., turn.partner]
    slack = carried + scaled * subject.allowance(whole).allowed
    return subject.same(
        again,
        second.output,
        scaled * at_once.output,
        slack=slack,
        than=f"its own turn by {more} positions more at once",
    )


def _both_pairings(case: RotaryCase, domain: RotaryDomain) -> RotaryCase | None:
    return case if len(domain.pairings) > 1 else None


@law("pairings-agree-when-permuted", kind="rotary", adapt=_both_pairings)
def pairings_agree_when_permuted(case: RotaryCase, subject: RotarySubject) -> Verdict:
    """Half and interleaved pairing are one rotation of permuted channels."""
    inputs = subject.inputs(case)
    other, order = _converted_once(inputs, subject)
    outcome, second = subject.call(inputs), subject.call(other)
    if not subject.sound(inputs, outcome):
        return INAPPLICABLE
    if (problem := subject.unusable(other, second)) is not None:
        return problem
    return subject.same(
        other,
        second.output,
        outcome.output[..., order],
        slack=subject.allowance(inputs).allowed[..., order],
        than=f"itself with pairing {inputs.pairing!r}, permuted",
    )


def _converted_once(inputs: RotaryInputs, subject: RotarySubject) -> tuple[RotaryInputs, Array]:
    """:func:`converted`, the same one for every law that asks."""
    return subject.once("converted", inputs, lambda: converted(inputs))


def converted(inputs: RotaryInputs) -> tuple[RotaryInputs, Array]:
    """The same numbers for the other pairing, and the channel that each of its channels was."""
    target = "half" if inputs.pairing == "interleaved" else "interleaved"
    order = np.arange(inputs.x.shape[-1])
    for here, there in zip(
        pairs(inputs.turning, inputs.pairing), pairs(inputs.turning, target), strict=True
    ):
        order[there] = here
    return inputs.but(x=inputs.x[..., order], pairing=target), order


@law("converted-weights-keep-scores", kind="rotary", adapt=_both_pairings)
def converted_weights_keep_scores(case: RotaryCase, subject: RotarySubject) -> Verdict:
    """Queries and keys of weights converted to the other pairing score as before."""
    inputs = subject.inputs(case)
    key = _key_beside(case, subject)
    if not subject.sound(inputs, subject.call(inputs)):
        return INAPPLICABLE
    turned: list[Turned] = []
    for query, keys in ((inputs, key), (_converted_once(inputs, subject)[0], converted(key)[0])):
        outputs = []
        for part in (query, keys):
            outcome = subject.call(part)
            if (problem := subject.unusable(part, outcome)) is not None:
                return problem
            outputs.append(outcome.output)
        turned.append((query, outputs[0], keys, outputs[1]))
    return _same_scores(
        subject, turned[:1], turned[1:], than="its own with weights for the other pairing"
    )
