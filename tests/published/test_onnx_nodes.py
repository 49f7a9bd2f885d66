"""ONNX's own node tests, written by others, judged by our reference and bound."""

import subprocess
import sys
from dataclasses import replace

import pytest

pytest.importorskip("onnx")

from tests.published.onnx_nodes import (
    attention_verdict,
    in_wheel,
    installed,
    present_is_the_past_and_the_new,
    rotary_used,
)

# Softcap behind the mask, where later versions of the standard (and we) put it before.
CAPPED_BEHIND_THE_MASK = {
    "test_attention_3d_with_past_and_present_qk_matmul_softcap",
    "test_attention_4d_with_qk_matmul_softcap",
}
# Causal order counted from the first key, where a past comes before.
CAUSAL_FROM_THE_FIRST_KEY = {
    "test_attention_4d_with_past_and_present_qk_matmul_bias_3d_mask_causal",
    "test_attention_4d_with_past_and_present_qk_matmul_bias_4d_mask_causal",
}


@pytest.fixture(scope="module")
def attention_cases():
    return list(installed("Attention", "attention"))


def test_the_installed_attention_cases_are_within_the_bound(attention_cases):
    assert len(attention_cases) >= 60
    assert sum("gqa" in case.name for case in attention_cases) >= 13
    for case in attention_cases:
        used, zeros = attention_verdict(case)
        assert used <= 1, (case.name, used)
        assert zeros, case.name
        assert present_is_the_past_and_the_new(case), case.name


def test_the_installed_rotary_cases_are_within_the_bound():
    cases = list(installed("RotaryEmbedding", "rotaryembedding"))
    assert len(cases) >= 8
    for case in cases:
        assert rotary_used(case) <= 1, case.name


def test_a_wrong_expectation_would_be_flagged(attention_cases):
    grouped = next(case for case in attention_cases if case.name == "test_attention_4d_gqa")
    output = grouped.outputs[0]
    swapped = replace(grouped, outputs=[output[:, ::-1], *grouped.outputs[1:]])
    assert attention_verdict(swapped)[0] > 100
    slightly = replace(grouped, outputs=[output * (1 + 1e-5), *grouped.outputs[1:]])
    assert attention_verdict(slightly)[0] > 1
    rotary = next(iter(installed("RotaryEmbedding", "rotaryembedding")))
    assert rotary_used(replace(rotary, outputs=[rotary.outputs[0][..., ::-1]])) > 100


def wheel_of(version, folder):
    """A released wheel of onnx, as pip finds it; skips where it does not."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", f"onnx=={version}", "--dest", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    found = list(folder.glob("*.whl"))
    if done.returncode or not found:
        last = (done.stderr.strip() or "no wheel").splitlines()[-1]
        pytest.skip(f"onnx {version} cannot be downloaded: {last}")
    return found[0]


@pytest.mark.slow
def test_the_13_wrong_grouped_cases_of_1_19_are_flagged(tmp_path):
    cases = list(in_wheel(wheel_of("1.19.0", tmp_path), "Attention"))
    wrong = {case.name for case in cases if attention_verdict(case)[0] > 1}
    grouped = {case.name for case in cases if "gqa" in case.name}
    assert len(grouped) == 13
    assert wrong == grouped | CAPPED_BEHIND_THE_MASK | CAUSAL_FROM_THE_FIRST_KEY


@pytest.mark.slow
def test_the_grouped_cases_of_1_20_pass(tmp_path):
    cases = list(in_wheel(wheel_of("1.20.0", tmp_path), "Attention"))
    wrong = {case.name for case in cases if attention_verdict(case)[0] > 1}
    assert sum("gqa" in case.name for case in cases) == 13
    assert wrong == CAPPED_BEHIND_THE_MASK
