"""Every backend agrees with float64 attention, and what it declares of itself is true."""

import dataclasses
from functools import cache

import numpy as np
import pytest
import torch

from benchmarks.plain_cases import plain_case, refusal
from equivalence import registry
from equivalence.bounds import allowance, lse_allowance
from equivalence.calling import LocalTarget
from equivalence.case import AttentionCase
from equivalence.compare import compare
from equivalence.dtypes import DTYPES
from equivalence.inputs import attention_inputs
from equivalence.loading import load
from equivalence.masks import Mask
from equivalence.profiles import PROFILES, profile_for
from equivalence.reference import attention
from equivalence.resolve import resolve

torch.set_num_threads(1)

NAMES = [b.name for b in registry.OURS if b.name.partition(".")[0] in ("torch", "numpy")]
SDPA = "torch.nn.functional:scaled_dot_product_attention"
# A call of flex_attention takes 9 ms in eager mode: its other dtypes run in `.ci/slow`.
EACH = [
    pytest.param(
        name,
        dtype,
        marks=[pytest.mark.slow] if "flex" in name and dtype != "bfloat16" else [],
    )
    for name in [*NAMES, SDPA]
    for dtype in DTYPES
]
SEEDS = range(70_000, 70_024)


@cache
def target_named(name):
    if name == SDPA:
        declaration = registry.known_declaration(*SDPA.split(":"))
        options = {"mask": "attn_mask", "causal": "is_causal"}
        options |= {"scale": "scale", "enable_gqa": "enable_gqa"}
        function = torch.nn.functional.scaled_dot_product_attention
        return LocalTarget(name=name, function=function, declaration=declaration, options=options)
    return registry.entries()[name].load()


@cache
def exact_of(case):
    return attention(attention_inputs(case))


@cache
def bound_of(case, profile):
    return allowance(attention_inputs(case), exact_of(case), profile)


def cases_for(target, dtype, seeds=SEEDS):
    cases = (plain_case(seed, dtype) for seed in seeds)
    return [case for case in cases if refusal(target, case) is None]


@pytest.mark.parametrize(("name", "dtype"), EACH)
def test_the_output_is_within_the_bound(name, dtype):
    target = target_named(name)
    cases = cases_for(target, dtype)
    assert len(cases) >= 10
    for case in cases:
        inputs, exact = attention_inputs(case), exact_of(case)
        outcome = target.call(inputs)
        assert outcome.status == "returned", (outcome.text, case)
        assert outcome.dtype == dtype
        assert outcome.mutated == ()
        assert not outcome.extra_result
        bound = bound_of(case, profile_for(dtype, target.declaration.profile))
        found = compare(outcome.output, exact.output, bound, dtype=dtype, rows=exact.seen > 0)
        assert found.used <= 1, (found.index, found.got, found.expected, found.used, case)


TIGHTER = {"flash": "f32", "eager": "flash", "math": "eager"}


@pytest.mark.parametrize("name", [*NAMES, SDPA])
def test_the_declared_profile_is_the_tightest_preset_that_holds(name):
    target = target_named(name)
    declared = target.declaration.profile
    if declared not in TIGHTER:
        assert declared == "f32"  # there is nothing tighter in 16 bit
        return
    for seed in range(2_000_000, 2_000_500):
        for dtype in ("float16", "bfloat16"):
            for case in cases_for(target, dtype, [seed]):
                exact = exact_of(case)
                bound = bound_of(case, PROFILES[TIGHTER[declared]])
                output = target.call(attention_inputs(case)).output
                rows = exact.seen > 0
                if not compare(output, exact.output, bound, dtype=dtype, rows=rows).passes:
                    return
    pytest.fail(f"{name} holds under {TIGHTER[declared]} as well")


@pytest.mark.parametrize(("name", "dtype"), EACH)
def test_a_repeat_is_bitwise_equal(name, dtype):
    target = target_named(name)
    assert target.declaration.deterministic
    for case in cases_for(target, dtype)[:10]:
        inputs = attention_inputs(case)
        first = target.call(inputs).stored.tobytes()
        shift = bytes(case.seed % 977)  # other addresses for the second call
        assert target.call(inputs).stored.tobytes() == first, (case, len(shift))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [n for n in NAMES if n.startswith("numpy.")])
def test_a_row_does_not_depend_on_its_batch_where_declared(name, dtype):
    target = target_named(name)
    assert target.declaration.batch_invariant
    for case in cases_for(target, dtype):
        inputs = attention_inputs(case)
        whole = target.call(inputs).stored
        for row in range(case.batch_size):
            alone = {
                operand: getattr(inputs, operand)[row : row + 1]
                for operand in ("query", "key", "value")
            }
            if inputs.mask is not None and inputs.mask.shape[0] > 1:
                alone["mask"] = inputs.mask[row : row + 1]
            if inputs.kv_lengths is not None:
                alone["kv_lengths"] = inputs.kv_lengths[row : row + 1]
            np.testing.assert_array_equal(
                target.call(inputs.but(**alone)).stored, whole[row : row + 1], err_msg=repr(case)
            )


EMPTY_ROWS = {
    "bool mask": Mask(empty_rows=2),
    "float mask": Mask(form="float", empty_rows=2),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mask", EMPTY_ROWS.values(), ids=EMPTY_ROWS)
@pytest.mark.parametrize("name", [*NAMES, SDPA])
def test_rows_that_see_nothing_hold_what_is_declared(name, mask, dtype):
    target = target_named(name)
    case = AttentionCase(
        batch_size=2, num_kv_heads=2, group_size=3, q_len=3, kv_len=5, head_dim=8,
        dtype=dtype, values="normal", mask=mask,
    )  # fmt: skip
    if target.supports(case) is not True:
        pytest.skip(str(target.supports(case)))
    inputs = attention_inputs(case)
    rows = target.call(inputs).output[:, :, :2]
    match target.declaration.masked_rows:
        case "zeros":
            assert (rows == 0).all()
        case "nan":
            assert np.isnan(rows).all()
        case "uniform":
            mean = inputs.value.mean(axis=2)[:, inputs.kv_head_of][:, :, None]
            np.testing.assert_allclose(rows, np.broadcast_to(mean, rows.shape), rtol=0, atol=0.02)
        case other:
            pytest.fail(f"declares masked_rows={other!r}")


@pytest.mark.parametrize("name", NAMES)
def test_no_key_at_all_gives_zeros_or_is_refused(name):
    target = target_named(name)
    case = AttentionCase(num_kv_heads=2, group_size=2, q_len=3, kv_len=0, head_dim=4)
    if target.supports(case) is True:
        assert (target.call(attention_inputs(case)).output == 0).all()


@pytest.mark.parametrize("operand", ["key", "value"])
@pytest.mark.parametrize("name", NAMES)
def test_nan_behind_a_mask_is_ignored_where_declared_and_never_laundered(name, operand):
    target = target_named(name)
    case = AttentionCase(
        num_kv_heads=2, group_size=2, q_len=3, kv_len=6, head_dim=8, values="normal",
        mask=Mask(pattern="padding", size=4, axes=""),
    )  # fmt: skip
    inputs = attention_inputs(case)
    hidden = {name: getattr(inputs, name).copy() for name in ("key", "value")}
    hidden[operand][:, :, 5] = np.nan
    output = target.call(inputs.but(**hidden)).output
    if target.declaration.hidden_nan == "ignored":
        np.testing.assert_array_equal(output, target.call(inputs).output)
    elif operand == "value":
        assert np.isnan(output).any()
    visible = {name: getattr(inputs, name).copy() for name in ("key", "value")}
    visible[operand][:, :, 1] = np.nan
    assert np.isnan(target.call(inputs.but(**visible)).output).any(axis=-1).all()


@pytest.mark.parametrize("heads", [(3, 2), (2, 3), (1, 2)])
@pytest.mark.parametrize("name", NAMES)
def test_heads_that_do_not_divide_are_refused(name, heads):
    num_heads, num_kv_heads = heads
    inputs = attention_inputs(AttentionCase(num_kv_heads=6, kv_len=3, head_dim=4, values="normal"))
    uneven = inputs.but(
        query=inputs.query[:, :num_heads],
        key=inputs.key[:, :num_kv_heads],
        value=inputs.value[:, :num_kv_heads],
    )
    outcome = target_named(name).call(uneven)
    assert outcome.status == "refused"
    assert (
        f"num_heads={num_heads} must be a multiple of num_kv_heads={num_kv_heads}" in outcome.text
    )


LIMITS = {
    "torch.sdpa_gqa_flash": [
        (AttentionCase(head_dim=4, value_head_dim=2), "value_head_dim=2 differs from head_dim=4"),
        (AttentionCase(head_dim=4, memory="transposed", kv_len=3), "stride 1"),
        (AttentionCase(q_len=2, kv_len=2, causal="upper_left", scale=-1.0), "gives NaN"),
        (AttentionCase(kv_len=0), "there is no key"),
    ],
    "torch.sdpa_gqa": [(AttentionCase(causal="upper_left", scale=0.0), "gives NaN")],
    "torch.sdpa": [(AttentionCase(causal="upper_left", scale=0.0), "gives NaN")],
    "torch.flex_attention": [(AttentionCase(kv_len=0), "empty")],
    "torch.repeat_interleave": [(AttentionCase(head_order=(0,)), "explicit head map")],
    "torch.broadcast_matmul": [
        (AttentionCase(head_order=(0,)), "explicit head map"),
        (AttentionCase(mask=Mask(form="float", hidden="finfo.min")), "finfo.min"),
    ],
}


@pytest.mark.parametrize(
    ("name", "case", "reason"),
    [(name, case, reason) for name, limits in LIMITS.items() for case, reason in limits],
)
def test_what_is_not_supported_has_a_reason(name, case, reason):
    said = target_named(name).supports(case)
    assert isinstance(said, str)
    assert reason in said


@pytest.mark.parametrize("name", [n for n in NAMES if n not in LIMITS])
def test_the_others_refuse_nothing_that_their_signature_takes(name):
    assert target_named(name).declaration.supports is None


def test_torch_still_gives_nan_for_causal_with_a_scale_that_is_not_positive():
    """The limit is torch's: once it is gone, the declared limits go too."""
    query = torch.ones(1, 1, 2, 4)
    output = torch.nn.functional.scaled_dot_product_attention(
        query, query, query, is_causal=True, scale=-1.0
    )
    assert output.isnan().any()


def test_torch_flash_still_turns_a_short_row_of_nan_scores_into_zeros():
    """pytorch#141128 is mended only from one vector of keys on (16 floats with AVX-512)."""
    query, key = torch.ones(1, 1, 1, 4), torch.full((1, 1, 4, 4), torch.nan)
    from equivalence.backends import torch_sdpa_gqa_flash, torch_sdpa_gqa_math

    assert (torch_sdpa_gqa_flash.flash(query, key, torch.ones(1, 1, 4, 4)) == 0).all()
    assert torch_sdpa_gqa_math.math(query, key, torch.ones(1, 1, 4, 4)).isnan().all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [n for n in NAMES if "sinks" in target_named(n).options])
def test_a_row_that_sees_only_a_sink_is_zero_whatever_the_policy(name, dtype):
    case = AttentionCase(
        group_size=2, q_len=2, kv_len=3, head_dim=4, values="normal", sinks=True, dtype=dtype,
        mask=Mask(empty_rows=1),
    )  # fmt: skip
    output = target_named(name).call(attention_inputs(case)).output
    assert (output[:, :, 0] == 0).all()


@pytest.mark.parametrize("name", [n for n in NAMES if n.startswith("torch.")])
def test_gradients_are_those_of_float64_attention_where_declared(name):
    target = target_named(name)
    case = AttentionCase(
        batch_size=2, num_kv_heads=2, group_size=3, q_len=3, kv_len=5, head_dim=8,
        dtype="float64", values="normal", mask=Mask(form="float", bias=1.0),
    )  # fmt: skip
    inputs = attention_inputs(case)
    upstream = np.random.default_rng(0).normal(size=(2, 6, 3, 8))
    if not target.declaration.gradients:
        assert target.call(inputs, output_gradient=upstream).status == "refused"
        return
    outcome = target.call(inputs, output_gradient=upstream)
    exact = exact_of(case)
    p = exact.probabilities
    value = inputs.value[:, inputs.kv_head_of]
    down = upstream @ value.swapaxes(-1, -2)
    scores = p * (down - (p * down).sum(axis=-1, keepdims=True)) * inputs.scale_value

    def of_kv_heads(per_head):
        return per_head.reshape(2, 2, 3, 5, 8).sum(axis=2)

    wanted = {
        "query": scores @ inputs.key[:, inputs.kv_head_of],
        "key": of_kv_heads(scores.swapaxes(-1, -2) @ inputs.query),
        "value": of_kv_heads(p.swapaxes(-1, -2) @ upstream),
    }
    for (operand, expected), got in zip(wanted.items(), outcome.gradients, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-11, atol=1e-13, err_msg=operand)


def test_split_kv_returns_the_natural_log_sum_exp():
    target = target_named("numpy.split_kv")
    for dtype in DTYPES:
        for case in cases_for(target, dtype):
            inputs, exact = attention_inputs(case), exact_of(case)
            lse = target.call(inputs).lse
            empty = exact.seen == 0
            assert (lse[empty] == -np.inf).all()
            allowed = lse_allowance(inputs, exact, profile_for(dtype, "f32"))
            error = np.abs(lse[~empty] - exact.lse[~empty])
            assert (error <= allowed[~empty]).all(), case


def test_flex_attention_neither_compiles_nor_leaves_its_switch_on():
    target = target_named("torch.flex_attention")
    case = AttentionCase(num_kv_heads=2, q_len=3, kv_len=3, head_dim=4, causal="lower_right")
    before = torch._dynamo.utils.counters["frames"].copy()
    assert target.call(attention_inputs(case)).status == "returned"  # warnings are errors here
    assert torch._dynamo.utils.counters["frames"] == before
    from equivalence.backends import flex_module

    assert flex_module.flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG is False


@pytest.mark.parametrize("order", ["grouped", "interleaved", (1, 0, 0, 0, 0, 0)])
@pytest.mark.parametrize("name", ["torch.q_fold", "torch.fused_grouped", "torch.grouped_matmul"])
def test_a_fold_takes_any_head_map(name, order):
    """The uneven map leaves one kv head with five readers and the other with one."""
    target = target_named(name)
    case = AttentionCase(
        batch_size=2, num_kv_heads=2, group_size=3, head_order=order, q_len=4, kv_len=5,
        head_dim=3, values="normal", mask=Mask(axes="bhq", pattern="random", size=60),
    )  # fmt: skip
    exact = exact_of(case)
    output = target.call(attention_inputs(case)).output
    seen = (exact.seen > 0)[..., None]
    np.testing.assert_allclose(
        np.where(seen, output, 0), np.where(seen, exact.output, 0), rtol=1e-5, atol=1e-6
    )


def test_names_resolve_to_backends_that_load():
    for name in NAMES:
        assert load(resolve(name)).name == name


def test_a_declaration_holds_only_facts():
    for name in NAMES:
        declared = dataclasses.asdict(target_named(name).declaration)
        assert declared["head_order"] == "grouped"
        assert declared["layout"] == "BHSD"
