"""Runtimes that compile for each shape, each in a process of its own: a few cases, slow tier."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from equivalence.case import AttentionCase
from equivalence.inputs import attention_inputs
from equivalence.kinds import kind_named
from equivalence.latent.case import MlaCase

from .judging import judged, loaded

ROOT = Path(__file__).parents[2]
CASE = AttentionCase(
    batch_size=2, num_kv_heads=2, group_size=3, q_len=3, kv_len=7, head_dim=5, values="normal"
)


@pytest.mark.parametrize("splits", ["decode", "split_kv"])
def test_the_triton_kernels_are_within_the_bound(splits: str) -> None:
    target = loaded(f"triton.{splits}")
    for dtype in target.declaration.dtypes or ():
        for case in (CASE, CASE.but(causal="lower_right", value_head_dim=9, q_len=9)):
            found = judged(target, case.but(dtype=dtype))
            assert found.used <= 1, (found.got, found.expected, case)


def test_the_interpreter_refuses_bfloat16_with_the_reason() -> None:
    outcome = loaded("triton.decode").call(attention_inputs(CASE.but(dtype="bfloat16")))
    if torch.cuda.is_available():
        assert outcome.status == "returned"
    else:
        assert outcome.status == "refused"
        assert "bfloat16 is silently wrong" in outcome.text


@pytest.mark.slow
def test_absorbed_latents_in_triton_are_within_the_bound() -> None:
    target = loaded("mla.triton_absorbed")
    case = MlaCase(
        batch_size=2, num_heads=3, head_dim=4, latent_dim=6, rope_dim=2, q_len=2, kv_len=9,
        values="normal",
    )  # fmt: skip
    subject = kind_named("mla").subject(target, None)
    inputs = subject.inputs(case)
    assert subject.judge(inputs, target.call(inputs)).status == "held"


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["executorch.xnnpack", "inductor.spelled_out", "inductor.flex_attention"]
)
def test_compiled_programs_are_within_the_bound(name: str) -> None:
    target = loaded(name)
    for case in (CASE, CASE.but(q_len=7, causal=target.declaration.causal)):
        found = judged(target, case)
        assert found.used <= 1, (found.got, found.expected, case)


TOGETHER = """
import sys
import triton  # as inductor loads it, to compile
from equivalence.case import AttentionCase
from equivalence.inputs import attention_inputs
from equivalence.registry import entries

assert not triton.knobs.runtime.interpret
case = AttentionCase(q_len=2, kv_len=5, head_dim=4, values="normal")
outcome = entries()["triton.split_kv"].load().call(attention_inputs(case))
assert outcome.status == "returned", outcome.text
assert sys.modules["triton"] is triton and not triton.knobs.runtime.interpret
"""


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="nothing is interpreted there")
def test_the_interpreter_and_a_triton_that_compiles_live_in_one_process() -> None:
    pytest.importorskip("triton")
    subprocess.run([sys.executable, "-c", TOGETHER], check=True, cwd=ROOT)
