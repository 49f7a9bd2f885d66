"""Parts of the keys merged by their log-sum-exps: right code is within ``split``, and not always
within ``f32``, whose weights add up to one whatever the scores are."""

import numpy as np
import pytest

from benchmarks.plain_cases import plain_case
from equivalence.bounds import allowance, combination_error
from equivalence.case import AttentionCase
from equivalence.compare import compare
from equivalence.dtypes import rounded
from equivalence.inputs import attention_inputs
from equivalence.masks import Mask
from equivalence.profiles import PROFILES, profile_for
from equivalence.reference import attention

INSIDE = {"float64": np.float64, "float32": np.float32, "float16": np.float32}


def merged(inputs, dtype, part):
    """Attention in numpy, each part of the keys by itself, merged by log-sum-exps.

    Flash decoding (Dao et al. 2023): float32 inside (float64 for float64), weights of a part
    stored in ``dtype``.
    """
    kind = INSIDE[dtype]
    heads, none = inputs.kv_head_of, kind(-np.inf)
    query, key, value = (x.astype(kind) for x in (inputs.query, inputs.key, inputs.value))
    scores = query @ key[:, heads].swapaxes(-1, -2) * kind(inputs.scale_value)
    if inputs.softcap is not None:
        scores = kind(inputs.softcap) * np.tanh(scores / kind(inputs.softcap))
    if inputs.bias is not None:
        scores = scores + inputs.bias.astype(kind)
    scores = np.where(inputs.visible, scores, none).astype(kind)
    sums, outputs = [], []
    for start in range(0, scores.shape[-1], part):
        some = scores[..., start : start + part]
        top = some.max(-1, keepdims=True)
        top = np.where(np.isfinite(top), top, kind(0))
        weights = np.exp(some - top)
        total = weights.sum(-1, keepdims=True)
        stored = rounded(weights.astype(np.float64), dtype).astype(kind)
        with np.errstate(divide="ignore"):
            sums.append(top + np.log(total))
        rows = value[:, heads, start : start + part]
        outputs.append(stored @ rows / np.where(total > 0, total, kind(1)))
    if inputs.sinks is not None:
        shape = (*scores.shape[:3], 1)
        sums.append(np.broadcast_to(inputs.sinks.astype(kind)[None, :, None, None], shape))
        outputs.append(np.zeros_like(outputs[0]))
    highest = np.max(sums, axis=0)
    highest = np.where(np.isfinite(highest), highest, kind(0))
    with np.errstate(divide="ignore"):
        lse = highest + np.log(sum(np.exp(one - highest) for one in sums))
    lse = np.where(np.isfinite(lse), lse, kind(0))
    found = sum(np.exp(one - lse) * output for one, output in zip(sums, outputs, strict=True))
    return rounded(found.astype(np.float64), dtype)


def used(case, profile, part):
    inputs = attention_inputs(case)
    exact = attention(inputs)
    with np.errstate(over="ignore", invalid="ignore"):
        found = merged(inputs, case.dtype, part)
    allowed = allowance(inputs, exact, profile)
    return compare(found, exact.output, allowed, dtype=case.dtype, rows=exact.seen > 0)


@pytest.mark.parametrize("part", [1, 5, 16])
@pytest.mark.parametrize("dtype", INSIDE)
def test_right_code_is_within_the_bound(dtype, part):
    checks = 0
    for seed in range(400, 460):
        case = plain_case(seed, dtype)
        if case.kv_len == 0:
            continue
        facts = used(case, profile_for(dtype, "split"), part)
        assert facts.passes, (case, facts.used)
        checks += not facts.vacuous
    assert checks > 40


@pytest.mark.parametrize(("dtype", "profile"), [("float64", "f64"), ("float32", "f32")])
def test_no_other_preset_of_theirs_is_enough(dtype, profile):
    """A row at -1e4: its log-sum-exp is rounded to a multiple of 2^-10 in float32."""
    mask = Mask(form="float", hidden="-1e4", empty_rows=1)
    cases = [
        AttentionCase(kv_len=kv_len, dtype=dtype, mask=mask, values="offset", seed=kv_len)
        for kv_len in range(17, 41)
    ]
    assert max(used(case, PROFILES[profile], 16).used for case in cases) > 1
    assert max(used(case, profile_for(dtype, "split"), 16).used for case in cases) <= 1


@pytest.mark.parametrize(("dtype", "most"), [("float16", 1.1), ("bfloat16", 1.1), ("float32", 2.5)])
def test_where_scores_are_ordinary_little_more_is_allowed(dtype, most):
    inputs = attention_inputs(
        AttentionCase(q_len=4, kv_len=64, head_dim=64, values="normal", dtype=dtype)
    )
    exact = attention(inputs)
    for bound in (lambda *given: allowance(*given).allowed, combination_error):
        flash, split = (bound(inputs, exact, PROFILES[name]) for name in ("flash", "split"))
        assert (split >= flash).all()
        assert (split <= most * flash).all()
