"""Scale, softcap, sinks and precision: of right kernels and of wrong ones."""

from __future__ import annotations

import math

import pytest
import torch

from equivalence.calling import LocalTarget
from equivalence.domain import Domain
from equivalence.probes import Asker, NotAnswered
from equivalence.probes.precision import precision
from equivalence.probes.scale import default_scale, given_scale
from equivalence.probes.sinks import sink_use
from equivalence.probes.softcap import softcap
from equivalence.probes.stability import stability
from tests.probes.asking import DTYPES, EVERYTHING, asker


@pytest.mark.parametrize(
    ("scale", "source"),
    [
        (lambda f, q, s: f, "1/sqrt(36)"),
        (lambda f, q, s: (q.shape[1] * q.shape[-1]) ** -0.5, "1/sqrt(144), the model dim"),
        (lambda f, q, s: 64**-0.5, "1/sqrt(64), the padded head_dim"),
        (lambda f, q, s: 40**-0.5, "1/sqrt(40), the padded head_dim"),
        (lambda f, q, s: 1.0, "1, not scaled"),
        (lambda f, q, s: f / math.log(2), "1/sqrt(36) times log2(e)"),
        (lambda f, q, s: f * f, "1/sqrt(36) twice"),
        (lambda f, q, s: 0.123, "unknown"),
    ],
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_scale_source(scale, source, dtype):
    assert default_scale(asker(dtype, scale=scale)).source == source


@pytest.mark.parametrize(
    ("dtype", "error"),
    [("float64", 1e-9), ("float32", 1e-6), ("float16", 1e-4), ("bfloat16", 1e-4)],
)
@pytest.mark.parametrize("true", [0.0123, 0.16666, 0.9, 3.3])
def test_scale_is_measured_to_the_stated_error(dtype, error, true):
    found = default_scale(asker(dtype, scale=lambda f, q, s: true))
    assert found.value == pytest.approx(true, rel=error)


def test_given_scale():
    assert given_scale(asker()).right
    assert given_scale(asker(scale=lambda f, q, s: q.shape[-1] ** -0.5)).source == "1/sqrt(36)"
    twice = given_scale(asker(scale=lambda f, q, s: f * q.shape[-1] ** -0.5))
    assert twice.source == "given times the default"


@pytest.mark.parametrize(
    ("cap", "shape"),
    [
        (lambda right, c: right, "tanh"),
        (lambda s, c: s, "ignored"),
        (lambda s, c: s.clamp(-c, c), "clip"),
        (lambda s, c: torch.tanh(s / c), "tanh without c"),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_softcap_shape(cap, shape, dtype):
    fault = {} if shape == "tanh" else {"softcap": lambda s, c, bias: cap(s, c)}
    questions = asker(dtype, **fault)
    assert softcap(questions, default_scale(questions)).shape == shape


def test_softcap_order():
    questions = asker()
    right = softcap(questions, default_scale(questions))
    assert right.right

    def after_bias(scores, cap, bias):
        bias = torch.zeros(()) if bias is None else bias
        return cap * torch.tanh((scores + bias) / cap) - torch.nan_to_num(bias)

    late = asker(softcap=after_bias)
    assert softcap(late, default_scale(late)).after_bias is True


def test_softcap_after_the_mask():
    def late(query, key, value, *, attn_mask=None, softcap=None):
        scores = query @ key.mT * query.shape[-1] ** -0.5
        if attn_mask is not None:
            attn_mask = attn_mask if attn_mask.dtype != torch.bool else attn_mask.float().log()
            scores = scores + attn_mask
        if softcap:
            scores = softcap * torch.tanh(scores / softcap)
        return scores.softmax(-1) @ value

    questions = Asker(LocalTarget.of(late, name="late"), EVERYTHING, "float32")
    assert softcap(questions, NotAnswered(why="")).after_mask is True


@pytest.mark.parametrize(
    ("fault", "use"),
    [
        ({}, "natural"),
        ({"sink": lambda extra, s, top, f: torch.zeros_like(extra)}, "ignored"),
        ({"sink": lambda e, s, top, f: torch.exp(s[None, :, None, None] * f - top)}, "scaled"),
        (
            {"sink": lambda e, s, top, f: torch.exp(s.flip(0)[None, :, None, None] - top)},
            "other heads",
        ),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_sinks(fault, use, dtype):
    assert sink_use(asker(dtype, **fault)).use == use


def test_missing_subtraction_of_the_maximum():
    assert stability(asker()).subtracts_max
    naive = stability(asker(probabilities=lambda s: s.exp() / s.exp().sum(-1, keepdim=True)))
    assert not naive.subtracts_max
    assert naive.fails_at == 100


def test_products_that_overflow_before_the_scale():
    def in_half(dots, factor, query, key):
        return (query @ key.mT * factor).float()

    assert stability(asker("float16", scores=lambda *a: in_half(*a))).dots_overflow
    assert not stability(asker("float16")).dots_overflow


@pytest.mark.parametrize(
    ("dtype", "fault", "profile"),
    [
        ("float16", {}, "flash"),
        ("bfloat16", {}, "flash"),
        ("float32", {"probs": lambda p, keep: p.bfloat16().float()}, "bf16_inside"),
        ("float32", {"probs": lambda p, keep: p.half().float()}, "f16_inside"),
        ("float64", {"probs": lambda p, keep: p.float().double()}, "single"),
    ],
)
def test_precision(dtype, fault, profile):
    assert precision(asker(dtype, **fault)).profile == profile


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_stored_scores_are_profile_eager_and_prescaled_operands_math(dtype):
    def eager(query, key, value):
        scores = query @ key.mT * query.shape[-1] ** -0.5
        return scores.float().softmax(-1).to(query.dtype) @ value

    def math_kernel(query, key, value):
        root = query.shape[-1] ** -0.25
        scores = (query * root) @ (key * root).mT
        return scores.float().softmax(-1).to(query.dtype) @ value

    found = [
        precision(Asker(LocalTarget.of(f, name="f"), Domain(group_size=(1, 1)), dtype)).profile
        for f in (eager, math_kernel)
    ]
    assert found == ["eager", "math"]
