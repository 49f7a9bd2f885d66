"""The rotary bound from both sides: correct code is inside, and little else is."""

import numpy as np
import pytest
import torch

from equivalence.backends import rotary_torch
from equivalence.compare import compare
from equivalence.dtypes import rounded
from equivalence.profiles import profile_for
from equivalence.rope.bounds import allowance, angle_error, norm_allowance
from equivalence.rope.case import RotaryCase
from equivalence.rope.inputs import rotary_inputs
from equivalence.rope.reference import rotary
from equivalence.rope.scaling import RopeScaling

SIXTEEN_BIT = ("float16", "bfloat16")


def used(case, actual, profile=None, tables=None):
    inputs = rotary_inputs(case)
    exact = rotary(inputs)
    bound = allowance(inputs, exact, profile_for(case.dtype, profile), tables)
    return compare(actual, exact.output, bound, dtype=case.dtype)


def turned(case, function, **options):
    inputs = rotary_inputs(case)
    x = torch.from_numpy(inputs.x).to(getattr(torch, case.dtype))
    return function(x, torch.from_numpy(inputs.positions), **options).double().numpy()


@pytest.mark.parametrize("dtype", ["float64", "float32", *SIXTEEN_BIT])
@pytest.mark.parametrize("start", [0, 250, 65_530, 999_000])
def test_correct_code_is_inside(dtype, start):
    for seed in range(12):
        case = RotaryCase(
            num_heads=2, seq_len=8, head_dim=32, start=start, dtype=dtype, seed=seed,
            values="normal",
        )  # fmt: skip
        facts = used(case, turned(case, rotary_torch.rotary), "eager")
        assert facts.passes, (case, facts.used)
        assert not facts.vacuous


@pytest.mark.parametrize("dtype", SIXTEEN_BIT)
def test_sixteen_bit_code_comes_close_to_the_bound(dtype):
    worst = 0.0
    for seed in range(40):
        case = RotaryCase(
            num_heads=2, seq_len=8, head_dim=32, start=1, dtype=dtype, seed=seed, values="normal"
        )
        worst = max(worst, used(case, turned(case, rotary_torch.half), "flash").used)
    assert 0.9 < worst <= 1.0


@pytest.mark.parametrize("dtype", ["float64", "float32", *SIXTEEN_BIT])
def test_twice_the_bound_is_outside(dtype):
    case = RotaryCase(seq_len=4, head_dim=8, start=1_000, dtype=dtype, values="normal")
    inputs = rotary_inputs(case)
    exact = rotary(inputs)
    bound = allowance(inputs, exact, profile_for(dtype, None), None).allowed
    assert used(case, exact.output + 0.99 * bound).passes
    assert not used(case, exact.output + 2.01 * bound).passes


def test_what_does_not_turn_must_not_change_at_all():
    case = RotaryCase(head_dim=6, rotary_dim=2, start=3, values="normal")
    output = rotary(rotary_inputs(case)).output.copy()
    assert used(case, output).passes
    output[..., 4] = np.nextafter(output[..., 4], np.inf)
    facts = used(case, output)
    assert facts.index[3] == 4
    assert facts.used == np.inf


def test_an_angle_in_half_precision_is_outside_from_the_first_positions():
    case = RotaryCase(seq_len=4, head_dim=8, start=1, values="normal")
    inputs = rotary_inputs(case)
    exact = rotary(inputs)
    for dtype in SIXTEEN_BIT:
        angle = rounded(inputs.by_row[:, None, :, None] * rounded(exact.frequency, dtype), dtype)
        partner = inputs.x[..., exact.partner]
        wrong = inputs.x * np.cos(angle) + exact.sign * partner * np.sin(angle)
        assert not used(case, wrong).passes
        assert used(case, wrong).used > 100


def test_tables_say_how_far_an_angle_may_be_off():
    inputs = rotary_inputs(RotaryCase(head_dim=8, start=1_000_000))
    exact = rotary(inputs)
    off = {t: angle_error(inputs, exact, t)[0, 0, 0] for t in ("float64", "float32", "bfloat16")}
    # One rounding of the angle for the first pair, whose frequency is exactly 1.
    assert np.isclose(off["float32"][0], 1e6 * 2.0**-24, rtol=1e-3)
    assert np.isclose(off["float64"][0], 1e6 * 2.0**-53, rtol=1e-3)
    assert off["bfloat16"][0] > 3
    assert (off["float32"] > off["float64"]).all()


def test_float64_tables_are_judged_as_such():
    case = RotaryCase(seq_len=4, head_dim=16, start=900_000, dtype="float32", values="normal")
    single = turned(case, rotary_torch.half)
    assert used(case, single, "flash").passes
    assert not used(case, single, "flash", "float64").passes
    assert used(case, turned(case, rotary_torch.float64_table), "flash", "float64").passes


def test_bfloat16_tables_prove_nothing_far_out():
    near, far = (RotaryCase(seq_len=2, head_dim=8, start=s, values="normal") for s in (1, 5_000))
    assert not used(near, rotary(rotary_inputs(near)).output, tables="bfloat16").vacuous
    assert used(far, rotary(rotary_inputs(far)).output, tables="bfloat16").vacuous
    assert not used(far, rotary(rotary_inputs(far)).output).vacuous


def test_lengths_are_judged_as_sharply_far_out_as_near():
    shares = []
    for start in (1, 900_000):
        inputs = rotary_inputs(RotaryCase(head_dim=8, start=start, values="normal"))
        exact = rotary(inputs)
        limits = norm_allowance(inputs, exact, profile_for("float32", None), None)
        shares.append(limits.allowed / limits.furthest)
    assert np.allclose(*shares, rtol=1e-6)
    assert shares[1].max() < 2e-6


def test_overflow_is_outside_the_domain():
    case = RotaryCase(dtype="float16", start=1)
    inputs = rotary_inputs(case).but(x=np.full((1, 1, 1, 2), 60_000.0))
    exact = rotary(inputs)
    bound = allowance(inputs, exact, profile_for("float16", None), None)
    assert not bound.in_domain.any()
    facts = compare(np.full((1, 1, 1, 2), np.inf), exact.output, bound, dtype="float16")
    assert facts.unjudged_nonfinite == 2


def test_a_factor_on_the_result_multiplies_what_underflow_cost():
    # Found by the count of false alarms, in float16 at magnitudes of 2^-20.
    case = RotaryCase(
        batch_size=2, num_heads=2, seq_len=6, head_dim=18, theta=100.0, start=13,
        scaling=RopeScaling(rope_type="longrope", factor=40.0), dtype="float16",
        values="heavy_tailed", magnitude=2.0**-20, seed=1000553,
    )  # fmt: skip
    exact = rotary(rotary_inputs(case))
    plain = turned(
        case,
        rotary_torch.rotary,
        theta=100.0,
        scaling=case.scaling.as_dict(theta=100.0, rotary_dim=18),
        attention_factor=1.0,
    )
    assert used(case, rounded(plain * exact.factor, "float16"), "eager").passes
