"""Each rotary law holds for a right embedding, and sees the fault that it is about."""

import itertools

import pytest
import torch

from equivalence.kinds import kind_named
from equivalence.laws import all_laws, law_named
from equivalence.rope.case import RotaryCase
from equivalence.rope.scaling import RopeScaling
from tests.broken import rotary_kernels as kernels
from tests.broken.rotary_kernels import angle_of, turn

DYNAMIC = RopeScaling(rope_type="dynamic", factor=4.0)
CASES = [
    RotaryCase(
        batch_size=2, num_heads=2, seq_len=4, head_dim=8, start=3, values="normal", dtype=dtype,
        **fields,
    )
    for dtype in ("float32", "bfloat16")
    for fields in (
        {},
        {"rotary_dim": 4, "pairing": "interleaved"},
        {"scaling": RopeScaling(rope_type="yarn")},
        {"row_step": 300, "memory": "transposed"},
    )
]  # fmt: skip


def subject_of(function, **facts):
    kind = kind_named("rotary")
    target = kind.open(function, function.__name__, facts)
    return kind.subject(target, kind.trials(target, ("float32", "bfloat16")).domain)


def verdict(subject, law, case):
    found = law_named(law)
    adapted = found.adapt(case, subject.domain)
    assert adapted is not None
    assert found.adapt(adapted, subject.domain) == adapted
    return found.check(adapted, subject)


@pytest.fixture(scope="module")
def right():
    return subject_of(kernels.right)


@pytest.mark.parametrize("law", [law.name for law in all_laws("rotary")])
def test_a_right_embedding_keeps_the_law(law, right):
    statuses = {verdict(right, law, case).status for case in CASES}
    assert "held" in statuses
    assert statuses <= {"held", "inapplicable"}


def _beyond(limit):
    """One too far beyond a position."""

    def function(x, positions):
        return turn(x, angle_of(x, positions + (positions > limit)))

    return function


def _alone(x, positions):
    """A token that comes alone turns as the next one."""
    return turn(x, angle_of(x, positions + (x.shape[2] == 1)))


def _longer(x, positions):
    """Right where the context reaches position 6, too far in a shorter one."""
    return turn(x, angle_of(x, positions) * (1.0 if int(positions.max()) >= 6 else 1.5))


def _second_head(x, positions):
    """Right where heads differ, wrong in head 1 where they hold the same numbers."""
    angle = angle_of(x, positions).expand(-1, x.shape[1], -1, -1).clone()
    if x.shape[1] > 1 and torch.equal(x[:, 0], x[:, 1]):
        angle[:, 1] += 0.5
    return turn(x, angle)


def _single_row(x, positions):
    """A batch of one turns twice as far."""
    return turn(x, angle_of(x, positions) * (2.0 if x.shape[0] == 1 else 1.0))


def _strided(x, positions):
    """The buffer is read as though it were contiguous."""
    if x.is_contiguous():
        return kernels.right(x, positions)
    flat = torch.as_strided(x, x.shape, torch.empty(x.shape).stride())
    return kernels.right(flat, positions)


def _one_pairing(x, positions, *, interleaved=False):
    """Interleaved pairing turns backwards."""
    angle = angle_of(x, positions) * (-1.0 if interleaved else 1.0)
    return turn(x, angle, interleaved=interleaved)


def _shrinking(x, positions):
    """cos and sin of two angles, each within its bound: no rotation."""
    angle = angle_of(x, positions)
    off = torch.tensor([1.0] + [1 + 2.0**-23] * (angle.shape[-1] - 1))
    cos, sin = angle.cos().to(x.dtype), (angle * off).sin().to(x.dtype)
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


def _leaks(x, positions):
    """Channel 0 is stirred into the last one."""
    turned = kernels.right(x, positions).clone()
    turned[..., -1] += 0.25 * x[..., 0]
    return turned


PLAIN = RotaryCase(seq_len=4, head_dim=8, start=3, values="normal")
FAULTS = [
    ("rotary-agrees-with-float64", kernels.doubled_position, PLAIN),
    ("only-declared-channels-move", _leaks, PLAIN.but(values="one_hot")),
    ("norms-are-kept", _shrinking, PLAIN.but(start=900_000)),
    ("position-zero-is-identity", kernels.one_too_far, PLAIN),
    ("scores-depend-on-offset-alone", _beyond(259), PLAIN.but(seed=1)),
    ("rotations-compose", _beyond(155), PLAIN.but(seed=150)),
    ("pairings-agree-when-permuted", _one_pairing, PLAIN),
    ("converted-weights-keep-scores", _one_pairing, PLAIN),
    ("query-and-key-use-one-table", _alone, PLAIN),
    ("cached-keys-stay-valid", _longer, PLAIN),
    ("heads-are-turned-alike", _second_head, PLAIN.but(num_heads=2)),
    ("rotary-inputs-are-not-modified", kernels.moves_the_offset, PLAIN),
    ("rotary-strides-do-not-matter", _strided, PLAIN.but(num_heads=2, memory="transposed")),
    ("rotary-batch-rows-are-independent", _single_row, PLAIN.but(batch_size=2, row_step=1)),
    ("attention-factor-is-applied-once", kernels.factor_applied_twice, PLAIN),
    ("every-scaling-is-applied", kernels.scaling_ignored, PLAIN),
]


@pytest.mark.parametrize(("law", "function", "case"), FAULTS, ids=[f[0] for f in FAULTS])
def test_the_law_sees_its_fault(law, function, case):
    subject = subject_of(function)
    assert verdict(subject, law, case).status == "broken"


def test_repeating_is_judged_bit_for_bit_where_declared():
    calls = itertools.count()

    def drifts(x, positions):
        return kernels.right(x, positions) * (1 + 2.0**-23 * (next(calls) % 2))

    loose, strict = subject_of(drifts), subject_of(drifts, deterministic=True)
    assert verdict(loose, "rotary-repeats-itself", PLAIN).status == "held"
    assert verdict(strict, "rotary-repeats-itself", PLAIN).trouble.kind == "not-repeatable"


def test_stale_keys_under_dynamic_scaling_are_a_remark_not_a_failure(right):
    case = PLAIN.but(start=20, scaling=DYNAMIC)
    found = verdict(right, "cached-keys-stay-valid", case)
    assert found.status == "inapplicable"
    assert found.remarks == ("with dynamic scaling cached keys go stale as the context grows",)
    short = verdict(right, "cached-keys-stay-valid", case.but(start=1))
    assert short.remarks == ("with dynamic scaling cached keys stay valid here",)


def test_a_failure_says_where_and_how_far_the_angle_may_be_off():
    subject = subject_of(kernels.one_too_far)
    found = verdict(subject, "rotary-agrees-with-float64", RotaryCase(start=1_000))
    assert "position 1,000 (angle 1000, which may be 6e-05 off)" in found.trouble.text
    whole = subject_of(kernels.turns_all_channels)
    partial = RotaryCase(head_dim=4, rotary_dim=2, start=1)
    found = verdict(whole, "rotary-agrees-with-float64", partial)
    assert found.trouble.used == float("inf")
    assert "a channel that must not move" in found.trouble.text
