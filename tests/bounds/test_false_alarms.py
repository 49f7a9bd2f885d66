"""Correct code is never rejected: a short run of what benchmarks/false_alarms.py does at length."""

import numpy as np
import pytest
import torch

from benchmarks.plain_cases import plain_case, refusal
from equivalence.bounds import allowance
from equivalence.compare import compare
from equivalence.dtypes import DTYPES, rounded
from equivalence.inputs import attention_inputs
from equivalence.profiles import PROFILES, profile_for
from equivalence.reference import attention
from equivalence.registry import OURS

NAMES = ("numpy.split_kv", "torch.repeat_kv", "torch.repeat_interleave", "torch.sdpa_gqa_math")
CASES = range(40)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_backends(name, dtype):
    torch.set_num_threads(1)
    target = next(backend for backend in OURS if backend.name == name).load()
    profile = profile_for(dtype, target.declaration.profile)
    checks = 0
    for seed in CASES:
        case = plain_case(seed, dtype)
        if refusal(target, case) is not None:
            continue
        inputs = attention_inputs(case)
        exact = attention(inputs)
        facts = compare(
            target.call(inputs).output, exact.output, allowance(inputs, exact, profile),
            dtype=dtype, rows=exact.seen > 0,
        )  # fmt: skip
        assert facts.passes, (case, facts.used)
        checks += not facts.vacuous
    assert checks > 10


def narrow(inputs, dtype, *, everything):
    """Attention in numpy with each intermediate value stored in ``dtype`` (eager)."""

    def kept(x):
        return rounded(np.asarray(x, np.float64), dtype)

    heads = inputs.kv_head_of
    query, key, value = (
        kept(x) if everything else x for x in (inputs.query, inputs.key, inputs.value)
    )
    scores = kept(kept(query @ key[:, heads].swapaxes(-1, -2)) * inputs.scale_value)
    if inputs.softcap is not None:
        scores = kept(inputs.softcap * kept(np.tanh(kept(scores / inputs.softcap))))
    if inputs.bias is not None:
        scores = kept(scores + (kept(inputs.bias) if everything else inputs.bias))
    scores = np.where(inputs.visible, scores, -np.inf)
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isfinite(top), top, 0.0))
    total = weights.sum(-1, keepdims=True)
    return kept(kept(weights / np.where(total > 0, total, 1.0)) @ value[:, heads])


@pytest.mark.parametrize(
    ("dtype", "profile", "inside"),
    [
        ("float16", "eager", "float16"),
        ("bfloat16", "eager", "bfloat16"),
        ("float64", "single", "float32"),
        ("float32", "bf16_inside", "bfloat16"),
    ],
)
def test_every_value_stored_in_a_narrow_format(dtype, profile, inside):
    checks = 0
    for seed in range(60):
        case = plain_case(seed, dtype).but(alibi=False, sinks=False)
        inputs = attention_inputs(case)
        exact = attention(inputs)
        limits = allowance(inputs, exact, PROFILES[profile])
        found = narrow(inputs, inside, everything=dtype != inside)
        facts = compare(found, exact.output, limits, dtype=dtype, rows=exact.seen > 0)
        assert facts.passes, (case, facts.used)
        checks += not facts.vacuous
    assert checks > 30
