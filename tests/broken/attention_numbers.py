"""Scales, caps, sinks, slopes and the formats in which numbers are kept."""

from __future__ import annotations

import torch

from equivalence.case import AttentionCase as Case
from equivalence.masks import Mask
from tests.broken.attention_base import broken, where, without
from tests.broken.entry import Broken

HALF = ("float16", "bfloat16")
LARGE = Case(plants=(("query", 0, 0, 300.0), ("key", 0, 0, 300.0)))
PAIR = Case(kv_len=2, values="one_hot")


def in_half(right, at):
    """The product of query and key in float16, scaled afterwards."""
    if at.query.dtype != torch.float16:
        return right
    return right.half().to(at.wide)


def overflow_in_half(right, at):
    """As accurate as it should be, up to the largest float16."""
    return torch.where(right.abs() > 65504, right * torch.inf, right)


def pv_in_half(right, at):
    """The weights are not yet divided by their sum when the values are summed in float16."""
    if at.query.dtype != torch.float16:
        return right
    value = at.unread.to(at.wide)
    summed = (at.weights @ value).half().to(at.wide)
    total = at.total if at.given["sinks"] is None else at.total_with_sink
    return summed / torch.where(total == 0, 1.0, total)


def in_dtype_steps(right, at):
    """Values are summed key by key in the dtype of the output."""
    dtype, value = at.query.dtype, at.unread
    summed = right.new_zeros(right.shape, dtype=dtype)
    for j in range(at.kv_len):
        summed = summed + (at.probs[..., j : j + 1] * value[:, :, j : j + 1]).to(dtype)
    return summed.to(at.wide)


def mask_then_cap(right, at):
    cap = at.given["softcap"]
    if not cap:
        return right
    slopes = at.alibi if at.given["alibi_slopes"] is not None else 0.0
    return slopes + cap * torch.tanh((at.dots * at.factor + at.mask.to(at.wide)) / cap)


NUMBERS = (
    Broken(
        name="scale_of_the_model_width",
        rows=("ATT-S-vit-pytorch-65",),
        kernel=broken(factor=lambda f, at: f * at.heads**-0.5 if at.given["scale"] is None else f),
        smallest=Case(group_size=2, kv_len=2, values="one_hot"),
        smallest_in=dict.fromkeys(HALF, Case(group_size=2, kv_len=3, values="one_hot")),
        diagnoses=("scale",),
    ),
    Broken(
        name="scale_option_dropped",
        rows=("ATT-S-pytorch-174361",),
        kernel=broken(given=without(scale=None)),
        smallest=Case(kv_len=2, scale=0.5, values="one_hot"),
        smallest_in={"bfloat16": Case(kv_len=2, scale=0.1, values="one_hot")},
        diagnoses=("scale",),
    ),
    Broken(
        name="scale_of_zero_read_as_none",
        kernel=broken(factor=lambda f, at: f or at.dim**-0.5),
        smallest=Case(kv_len=2, scale=0.0, values="one_hot"),
        diagnoses=("scale",),
    ),
    Broken(
        name="scale_below_zero_read_as_none",
        kernel=broken(factor=lambda f, at: f if f > 0 else at.dim**-0.5),
        smallest=Case(kv_len=2, scale=-0.5, values="one_hot"),
        diagnoses=("scale",),
        note="`scale if scale > 0 else default`; a scale of 0 shows it as well",
    ),
    Broken(
        name="sign_of_the_scale_lost",
        kernel=broken(factor=lambda f, at: abs(f)),
        smallest=Case(kv_len=2, scale=-0.5, values="one_hot"),
        diagnoses=("scale",),
    ),
    Broken(
        name="scale_twice",
        rows=("ATT-CDO-TensorRT-4328",),
        kernel=broken(factor=lambda f, at: f * f),
        smallest=Case(kv_len=2, head_dim=2, values="one_hot"),
        diagnoses=("scale",),
    ),
    Broken(
        name="scale_of_the_value_width",
        kernel=broken(factor=lambda f, at: at.v_dim**-0.5 if at.given["scale"] is None else f),
        smallest=Case(kv_len=2, value_head_dim=2, values="one_hot"),
        smallest_in={"bfloat16": Case(kv_len=4, value_head_dim=2, values="one_hot")},
        diagnoses=("scale",),
    ),
    Broken(
        name="scale_of_the_padded_width",
        kernel=broken(
            factor=lambda f, at: (-(-at.dim // 8) * 8) ** -0.5 if at.given["scale"] is None else f
        ),
        smallest=PAIR,
        smallest_in={"bfloat16": Case(kv_len=2, values="normal")},
        diagnoses=("scale",),
    ),
    Broken(
        name="base_2_without_log2e",
        kernel=broken(weights=lambda right, at: torch.exp2(at.masked - at.top)),
        smallest=PAIR,
        smallest_in={"bfloat16": Case(kv_len=4, values="one_hot")},
        diagnoses=("scale",),
    ),
    Broken(
        name="scale_dropped_on_the_second_load",
        laws=("agrees-with-float64", "repeats-itself"),
        rows=("ATT-S-openvino-31365",),
        kernel=broken(given=where(lambda at: _loaded(at), without(scale=None, attn_mask=None))),
        smallest=None,
        diagnoses=("determinism", "scale"),
        note="a program kept by its shapes; the kept one has neither scale nor mask",
    ),
    Broken(
        name="softcap_dropped",
        rows=("ATT-S-sglang-33915", "ATT-S-vllm-metal-665"),
        kernel=broken(given=without(softcap=None)),
        smallest=Case(kv_len=2, softcap=1.0, values="one_hot"),
        smallest_in={
            "float16": Case(kv_len=5, softcap=1.0, values="one_hot"),
            "bfloat16": Case(kv_len=2, softcap=1.0, values="one_hot", seed=3),
        },
        diagnoses=("softcap",),
    ),
    Broken(
        name="softcap_not_multiplied_back",
        kernel=broken(capped=lambda right, at: right / at.given["softcap"]),
        smallest=Case(kv_len=2, softcap=5.0, values="one_hot"),
        diagnoses=("softcap",),
    ),
    Broken(
        name="softcap_before_the_scale",
        kernel=broken(
            capped=lambda right, at: (
                at.factor * at.given["softcap"] * torch.tanh(at.dots / at.given["softcap"])
            )
        ),
        smallest=Case(kv_len=2, head_dim=2, softcap=1.0, values="one_hot"),
        smallest_in={"bfloat16": Case(kv_len=2, head_dim=3, softcap=1.0, values="one_hot")},
        diagnoses=("softcap",),
    ),
    Broken(
        name="softcap_after_the_mask",
        kernel=broken(biased=mask_then_cap),
        smallest=Case(kv_len=2, mask=Mask(form="float", bias=1.0), softcap=1.0, values="steps"),
        diagnoses=("softcap", "mask-semantics"),
    ),
    Broken(
        name="sinks_dropped",
        rows=("ATT-AS-vllm-metal-550",),
        kernel=broken(given=without(sinks=None)),
        smallest=Case(sinks=True),
        diagnoses=("sinks",),
    ),
    Broken(
        name="sinks_dropped_in_one_reduction",
        rows=("ATT-AS-imp-1303",),
        kernel=broken(given=where(lambda at: at.kv_len > 32, without(sinks=None))),
        smallest=Case(kv_len=33, sinks=True),
        diagnoses=("sinks",),
        note="a mutant study, not a shipped bug",
    ),
    Broken(
        name="sinks_scaled",
        kernel=broken(sink=lambda right, at: right * at.factor),
        smallest=Case(head_dim=2, sinks=True),
        diagnoses=("sinks",),
    ),
    Broken(
        name="sinks_of_the_kv_head",
        kernel=broken(sink=lambda right, at: right[:, torch.arange(at.heads) // at.group]),
        smallest=Case(group_size=2, sinks=True),
        diagnoses=("sinks",),
    ),
    Broken(
        name="alibi_dropped",
        kernel=broken(given=without(alibi_slopes=None)),
        smallest=Case(kv_len=2, alibi=True, values="steps"),
        diagnoses=("ignored-option", "mask-semantics"),
    ),
    Broken(
        name="alibi_sign",
        kernel=broken(alibi=lambda right, at: -right),
        smallest=Case(kv_len=2, alibi=True, values="steps"),
        diagnoses=("ignored-option", "mask-semantics"),
    ),
    Broken(
        name="alibi_slopes_reversed",
        kernel=broken(alibi=lambda right, at: right.flip(1)),
        smallest=Case(group_size=2, kv_len=2, alibi=True, values="steps"),
        diagnoses=("ignored-option", "mask-semantics"),
    ),
    Broken(
        name="alibi_from_the_first_key",
        kernel=broken(
            alibi=lambda right, at: (
                -at.given["alibi_slopes"].to(at.wide).view(1, -1, 1, 1) * (at.keys - at.rows).abs()
            )
        ),
        smallest=Case(kv_len=2, alibi=True, values="steps"),
        diagnoses=("causal-alignment", "ignored-option", "mask-semantics"),
    ),
    Broken(
        name="fp16_scores_overflow",
        rows=("ATT-DAO-tinygrad-4985", "ATT-DAO-llama.cpp-7805"),
        kernel=broken(dots=in_half),
        facts={"profile": "flash"},
        smallest=None,
        diagnoses=("overflow", "precision"),
        dtypes=("float16",),
    ),
    Broken(
        name="fp16_scores_overflow_alone",
        kernel=broken(dots=overflow_in_half),
        facts={"profile": "flash"},
        smallest=LARGE,
        diagnoses=("overflow",),
        dtypes=("float16",),
    ),
    Broken(
        name="fp16_values_overflow",
        rows=("ATT-DAO-ik_llama.cpp-1196",),
        kernel=broken(output=pv_in_half),
        facts={"profile": "flash"},
        smallest=None,
        diagnoses=("overflow", "precision"),
        dtypes=("float16",),
    ),
    Broken(
        name="maximum_not_subtracted",
        kernel=broken(top=lambda right, at: torch.zeros_like(right)),
        smallest=LARGE,
        smallest_in={"float16": Case(mask=Mask(form="float", hidden="finfo.min", empty_rows=1))},
        diagnoses=("overflow",),
    ),
    Broken(
        name="summed_in_the_dtype",
        kernel=broken(output=in_dtype_steps),
        facts={"profile": "flash"},
        smallest=None,
        diagnoses=("precision",),
        dtypes=HALF,
    ),
    Broken(
        name="scores_in_bfloat16",
        kernel=broken(scores=lambda right, at: right.bfloat16().to(at.wide)),
        smallest=PAIR,
        smallest_in={"float16": Case(kv_len=3, values="one_hot", seed=3)},
        diagnoses=("precision",),
        dtypes=("float64", "float32", "float16"),
    ),
    Broken(
        name="weights_in_bfloat16",
        kernel=broken(probs=lambda right, at: right.bfloat16().to(at.wide)),
        smallest=Case(kv_len=3),
        diagnoses=("precision",),
        dtypes=("float64", "float32", "float16"),
    ),
    Broken(
        name="float32_inside_float64",
        kernel=broken(scores=lambda right, at: right.float().to(at.wide)),
        smallest=PAIR,
        diagnoses=("precision",),
        dtypes=("float64",),
    ),
)

LOADED: set[object] = set()


def _loaded(at):
    """Whether a program for these shapes and this scale has been kept."""
    shapes = (at.query.shape, at.key.shape, at.value.shape, at.given["scale"], at.query.dtype)
    known = shapes in LOADED
    LOADED.add(shapes)
    return known
