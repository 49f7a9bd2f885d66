"""The law about a whole layer expects what the declared profile allows, and no less."""

import pytest
import torch

from equivalence.calling import LocalTarget
from equivalence.engine import Request, check_target
from equivalence.latent.case import MlaCase
from equivalence.latent.domain import MlaDomain
from equivalence.latent.subject import MlaSubject
from equivalence.laws.mla_layer import layer_equals_full_causal
from tests.broken import mla_kernels

torch.set_num_threads(1)
CASE = MlaCase(
    batch_size=2, num_heads=3, head_dim=4, value_head_dim=3, latent_dim=8, rope_dim=4, kv_len=5,
    dtype="float64", values="normal", weights="realistic",
)  # fmt: skip


def in_float32(*tensors, scale):
    return mla_kernels.right(*(t.float() for t in tensors), scale=scale).to(tensors[0].dtype)


def wrong_in_the_step_over_two_tokens(*tensors, scale):
    given = in_float32(*tensors, scale=scale)
    return given * (1 + 1e-4) if (given.shape[2], tensors[2].shape[1]) == (1, 2) else given


def wrong_by_a_float32_rounding(*tensors, scale):
    given = mla_kernels.right(*tensors, scale=scale)
    return given * (1 + 1e-7) if (given.shape[2], tensors[2].shape[1]) == (1, 2) else given


def judged(function, case=CASE, **facts):
    target = LocalTarget.of(function, name="kernel", facts={"kind": "mla", **facts})
    return layer_equals_full_causal(case, MlaSubject(target, MlaDomain()))


@pytest.mark.parametrize("profile", ["single", "bf16_inside"])
def test_a_right_kernel_in_float32_keeps_every_law_in_float64(profile):
    target = LocalTarget.of(in_float32, name="kernel", facts={"kind": "mla", "profile": profile})
    result = check_target(target, Request(examples=8, dtypes=("float64",)))
    assert result.held is True, result.failures
    judged_cases = {found.law: found.examples for found in result.laws}
    assert judged_cases["mla-layer-equals-full-causal"] > 0


@pytest.mark.parametrize("seed", range(20))
def test_a_step_that_is_wrong_in_the_layer_alone_is_seen(seed):
    case = CASE.but(seed=seed)
    right = judged(in_float32, case, profile="single")
    assert right.status == "held"
    assert right.used < 0.5
    wrong = judged(wrong_in_the_step_over_two_tokens, case, profile="single")
    assert wrong.status == "broken"
    assert "position 1 is off by" in wrong.trouble.text


def test_without_the_profile_the_law_is_as_strict_as_float64():
    assert judged(mla_kernels.right).status == "held"
    assert judged(wrong_by_a_float32_rounding).status == "broken"
    assert judged(wrong_by_a_float32_rounding, profile="single").status == "held"
