"""Both sides of the bound: correct code is never rejected, and planted faults are seen."""

import dataclasses

import numpy as np
import pytest
import torch

from benchmarks.mla_false_alarms import implementations, plain_case
from equivalence.calling import LocalTarget
from equivalence.compare import compare
from equivalence.dtypes import DTYPES
from equivalence.latent.bounds import latent_allowance
from equivalence.latent.case import MlaCase
from equivalence.latent.inputs import latent_inputs
from equivalence.latent.reference import latent_attention
from equivalence.profiles import PROFILES, profile_for
from tests.broken import mla_kernels

torch.set_num_threads(1)
SEEDS = range(500_000, 500_016)

FAULTS = (
    "scale_of_the_latent_width",
    "placeholder_scale",
    "mscale_for_mscale_all_dim",
    "mscale_in_the_tables_twice",
    "deinterleaves_the_query_alone",
    "rotates_half_of_the_rotary_part",
    "drops_the_rotary_part",
    "rotary_key_for_each_head",
    "transposed_w_uk",
    "w_uk_of_another_head",
    "w_uv_of_head_0",
    "latent_as_value",
    "steps_values_by_their_own_width",
    "reads_values_as_wide_as_keys",
    "upper_left",
    "not_its_own_token",
    "empty_slices_weigh_one",
)


@pytest.mark.parametrize("dtype", DTYPES)
def test_correct_code_is_never_rejected(dtype):
    worst = 0.0
    for seed in SEEDS:
        case = plain_case(seed, dtype)
        inputs = latent_inputs(case)
        exact = latent_attention(inputs)
        for name, target in implementations().items():
            if name == "all in the dtype" and (dtype in DTYPES[:2] or case.latent_dim > 64):
                continue
            bound = latent_allowance(inputs, exact, profile_for(dtype, target.declaration.profile))
            found = compare(
                target.call(inputs).output, exact.output, bound, dtype=dtype, rows=exact.seen > 0
            )
            assert found.passes, (name, found.used, case)
            worst = max(worst, found.used)
    # It is not loose either: correct 16-bit code comes close to it.
    assert worst > (0.6 if dtype in ("float16", "bfloat16") else 0.01)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_seen_in_every_dtype(name, dtype):
    target = LocalTarget.of(getattr(mla_kernels, name), name=name, facts={"kind": "mla"})
    case = MlaCase(
        batch_size=2, num_heads=3, head_dim=4, value_head_dim=3, latent_dim=8, rope_dim=4, q_len=3,
        kv_len=11, dtype=dtype, values="normal", weights="realistic", magnitude=3.0,
    )  # fmt: skip
    seen = 0
    for seed in range(20):
        inputs = latent_inputs(case.but(seed=seed))
        exact = latent_attention(inputs)
        bound = latent_allowance(inputs, exact, profile_for(dtype, "eager"))
        found = compare(target.call(inputs).output, exact.output, bound, dtype=dtype)
        seen += not found.passes
    assert seen >= (20 if dtype == "float32" else 8), seen


def test_the_bound_grows_with_what_a_profile_may_round():
    case = plain_case(3, "bfloat16").but(values="normal", magnitude=1.0, weights="realistic")
    inputs = latent_inputs(case)
    exact = latent_attention(inputs)
    sizes = [
        latent_allowance(inputs, exact, PROFILES[name]).allowed.max()
        for name in ("f32", "flash", "eager", "full")
    ]
    assert sizes == sorted(sizes)


def test_parts_merged_by_their_log_sum_exps_are_allowed_for():
    """In what they merge a log-sum-exp of 700, float32 is off by half of 2^-14."""
    case = MlaCase(latent_dim=4, kv_len=9, values="normal", dtype="float32")
    inputs = latent_inputs(case)
    exact = latent_attention(inputs)
    far = dataclasses.replace(exact, lse=exact.lse + 700.0)
    flash, split = (
        latent_allowance(inputs, far, PROFILES[name]).allowed for name in ("flash", "split")
    )
    most = np.abs(exact.output) * 2.0**-15
    assert (split >= flash + most).all()
    assert (split < flash + 2.0**-9 * np.abs(exact.output).max() + 2.0**-9).all()


def test_a_float16_projection_that_overflows_is_outside_the_domain():
    case = MlaCase(latent_dim=1, kv_len=2, values="normal", dtype="float16")
    inputs = latent_inputs(case)
    huge = inputs.but(w_uv=np.full_like(inputs.w_uv, 60000.0), latent=2.0 + 0 * inputs.latent)
    exact = latent_attention(huge)
    assert not latent_allowance(huge, exact, PROFILES["eager"]).in_domain.any()
    assert latent_allowance(huge, exact, PROFILES["f32"]).in_domain.all()


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_absorption_costs_no_accuracy_beyond_its_bound(dtype):
    """Absorbed and expanded, both within one bound; their typical errors are of one size."""
    kernels = implementations()
    errors = {"expanded": [], "absorbed": []}
    for seed in range(20):
        case = MlaCase(
            num_heads=2, head_dim=16, latent_dim=64, rope_dim=8, kv_len=33, dtype=dtype,
            values="normal", weights="realistic", seed=seed,
        )  # fmt: skip
        inputs = latent_inputs(case)
        exact = latent_attention(inputs)
        bound = latent_allowance(inputs, exact, profile_for(dtype, "eager"))
        for name, found in errors.items():
            error = np.abs(kernels[name].call(inputs).output - exact.output)
            assert (error <= bound.allowed).all()
            found.append(error.mean())
    ratio = np.mean(errors["absorbed"]) / np.mean(errors["expanded"])
    assert 0.25 < ratio < 4.0, ratio
