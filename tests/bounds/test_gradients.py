"""The gradient bound from both sides, and its exact gradients against finite differences."""

import numpy as np
import pytest
import torch

from benchmarks.plain_cases import plain_case, refusal
from equivalence.bounds import allowance
from equivalence.case import AttentionCase
from equivalence.dtypes import DTYPES, format_of, rounded
from equivalence.gradients import gradients
from equivalence.inputs import attention_inputs
from equivalence.masks import Mask
from equivalence.profiles import PROFILES, profile_for
from equivalence.reference import attention
from equivalence.registry import OURS

NAMES = ("torch.repeat_kv", "torch.repeat_interleave", "torch.sdpa_gqa", "torch.sdpa_gqa_math")


def upstream_of(inputs, seed=0):
    shape = (*inputs.query.shape[:3], inputs.value.shape[3])
    return rounded(np.random.default_rng([seed, 5]).normal(size=shape), inputs.dtype)


def expected(inputs, upstream, profile):
    exact = attention(inputs)
    return gradients(inputs, exact, allowance(inputs, exact, profile).allowed, upstream, profile)


def worst(found, expected):
    """The largest |error| / allowed, of query, key and value."""
    used = []
    for actual, exact, allowed in zip(found, expected.exact, expected.allowed, strict=True):
        error = np.abs(actual - exact)
        with np.errstate(invalid="ignore", divide="ignore"):
            used.append(float(np.where(error == 0, 0.0, error / allowed).max(initial=0.0)))
    return used


DIFFERENTIABLE = [
    AttentionCase(num_kv_heads=2, group_size=2, q_len=3, kv_len=4, head_dim=3, value_head_dim=2),
    AttentionCase(num_kv_heads=2, group_size=2, head_order=(1, 0, 1, 1), q_len=2, kv_len=3),
    AttentionCase(q_len=3, kv_len=4, head_dim=2, softcap=1.5, magnitude=3.0, scale=-0.7),
    AttentionCase(q_len=3, kv_len=4, causal="upper_left", mask=Mask(form="float", bias=1.0)),
    AttentionCase(q_len=2, kv_len=4, head_dim=2, sinks=True, alibi=True, window=2),
]


@pytest.mark.parametrize("place", range(len(DIFFERENTIABLE)))
def test_exact_gradients_are_the_slopes_of_the_reference(place):
    inputs = attention_inputs(DIFFERENTIABLE[place].but(values="normal", dtype="float64"))
    upstream = upstream_of(inputs)
    found = expected(inputs, upstream, PROFILES["f64"]).exact
    for name, gradient in zip(("query", "key", "value"), found, strict=True):
        operand = getattr(inputs, name)
        for index in np.ndindex(operand.shape):
            step = np.zeros_like(operand)
            step[index] = 1e-5
            high, low = (
                (upstream * attention(inputs.but(**{name: operand + s * step})).output).sum()
                for s in (1, -1)
            )
            assert gradient[index] == pytest.approx((high - low) / 2e-5, abs=1e-7)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_autograd_is_within_the_bound(name, dtype):
    torch.set_num_threads(1)
    target = next(backend for backend in OURS if backend.name == name).load()
    profile, checks = profile_for(dtype, target.declaration.profile), 0
    for seed in range(24):
        case = plain_case(seed, dtype).but(memory="contiguous")
        if refusal(target, case) is not None:
            continue
        inputs = attention_inputs(case)
        exact, upstream = attention(inputs), upstream_of(inputs, seed)
        limits = allowance(inputs, exact, profile)
        slopes = gradients(inputs, exact, limits.allowed, upstream, profile)
        if not limits.in_domain.all() or not (exact.seen > 0).all():
            continue
        if slopes.largest_product > format_of(dtype).max_finite / 16:
            continue
        found = target.call(inputs, output_gradient=upstream).gradients
        assert max(worst(found, slopes)) <= 1, case
        checks += 1
    assert checks >= 5


def recomputed(inputs, upstream):
    """FlashAttention's backward pass: P anew from the stored lse, delta from the stored output."""

    def kept(x):
        return rounded(x, inputs.dtype)

    def single(x):
        return np.asarray(x, np.float32).astype(np.float64)

    exact, heads = attention(inputs), inputs.kv_head_of
    key, value = inputs.key[:, heads], inputs.value[:, heads]
    scores = single(inputs.scale_value * single(inputs.query @ key.swapaxes(-1, -2)))
    lse = single(exact.lse)[..., None]
    p = single(np.exp(np.where(exact.visible, single(scores - lse), -np.inf)))
    delta = single((upstream * kept(exact.output)).sum(-1, keepdims=True))
    d_scores = kept(single(p * (single(upstream @ value.swapaxes(-1, -2)) - delta)))
    p, scale = kept(p), inputs.scale_value
    per_head = (
        scale * np.swapaxes(d_scores, -1, -2) @ inputs.query, np.swapaxes(p, -1, -2) @ upstream,
    )  # fmt: skip
    summed = [np.zeros_like(inputs.key), np.zeros_like(inputs.value)]
    for total, part in zip(summed, per_head, strict=True):
        for head, kv_head in enumerate(heads):
            total[:, kv_head] += part[:, head]
    return kept(scale * d_scores @ key), kept(summed[0]), kept(summed[1])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_backward_pass_that_recomputes_probabilities_is_within_the_bound(dtype):
    top = 0.0
    for seed in range(30):
        case = AttentionCase(
            num_kv_heads=2, group_size=2, q_len=6, kv_len=9, head_dim=8, dtype=dtype, seed=seed,
            values=("normal", "offset", "outliers", "peaky")[seed % 4], causal="lower_right",
            magnitude=(0.3, 1.0, 3.0)[seed % 3],
        )  # fmt: skip
        inputs = attention_inputs(case)
        upstream = upstream_of(inputs, seed)
        slopes = expected(inputs, upstream, PROFILES["flash"])
        top = max(top, *worst(recomputed(inputs, upstream), slopes))
    assert 0.05 < top <= 1


def test_gradients_below_the_smallest_normal_number():
    """SDPA in float64 was rejected for an error of 1e-312."""
    target = next(backend for backend in OURS if backend.name == "torch.sdpa_gqa_math").load()
    for seed in range(20):
        case = AttentionCase(
            kv_len=34, head_dim=2, dtype="float64", values="heavy_tailed", magnitude=30.0, seed=seed
        )
        inputs = attention_inputs(case)
        upstream = upstream_of(inputs, seed)
        found = target.call(inputs, output_gradient=upstream).gradients
        assert max(worst(found, expected(inputs, upstream, PROFILES["f64"]))) <= 1


def test_a_key_of_great_uncertainty_may_take_the_weight_of_the_others():
    """p of the first key may fall from 0.98 to a fourth, although its own score is exact."""
    inputs = attention_inputs(AttentionCase(kv_len=2, head_dim=2, dtype="bfloat16")).but(
        query=np.array([[[[8.0, 8.0]]]]),
        key=np.array([[[[0.0, 0.0], [32.0, -32.5]]]]),
        value=np.array([[[[1.0, 0.0], [0.0, 0.0]]]]),
        scale=1.0,
    )
    exact = attention(inputs)
    upstream = np.array([[[[1.0, 0.0]]]])
    slopes = expected(inputs, upstream, PROFILES["math"])
    d_value = exact.probabilities[0, 0, 0, 0]
    assert slopes.exact[2][0, 0, 0, 0] == pytest.approx(d_value)
    # (1 + u)^2 on products of 256 and -260: a score of -4 may come out as 0.
    fallen = 1 / (1 + np.exp(-4 + 2 * 2.0**-8 * 516))
    assert slopes.allowed[2][0, 0, 0, 0] > d_value - fallen > 0.4


WRONG = ["no group sum", "no causal mask", "no delta", "factor"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fault", WRONG)
def test_planted_faults_are_outside(fault, dtype):
    for seed in range(8):
        case = AttentionCase(
            num_kv_heads=2, group_size=2, q_len=6, kv_len=6, head_dim=8, dtype=dtype, seed=seed,
            values="normal", causal="lower_right",
        )  # fmt: skip
        inputs = attention_inputs(case)
        upstream = upstream_of(inputs, seed)
        profile = profile_for(dtype, "flash")
        right = expected(inputs, upstream, profile)
        query, key, value = right.exact
        match fault:
            case "no group sum":
                only = upstream * np.array([1, 0, 1, 0])[None, :, None, None]
                wrong = query, *expected(inputs, only, profile).exact[1:]
            case "no causal mask":
                wrong = expected(inputs.but(causal=None), upstream, profile).exact
            case "no delta":
                exact, heads = attention(inputs), inputs.kv_head_of
                shift = (upstream * exact.output).sum(-1, keepdims=True)
                scores = exact.probabilities * shift
                wrong = query + inputs.scale_value * scores @ inputs.key[:, heads], key, value
            case _:
                off = 1.01 if dtype != "bfloat16" else 1.1
                wrong = off * query, off * key, off * value
        stored = [rounded(x, dtype) for x in wrong]
        assert max(worst([rounded(x, dtype) for x in right.exact], right)) <= 1
        used = worst(stored, right)
        named = {"no group sum": (1, 2), "no delta": (0,), "no causal mask": (0, 1, 2)}
        assert all(used[place] > 1 for place in named.get(fault, (2,))), used
