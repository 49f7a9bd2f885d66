"""The attention mistakes of the public bug reports, each on a small counterexample."""

from __future__ import annotations

import math

import pytest
import torch

from equivalence.case import AttentionCase as Case
from equivalence.masks import Mask
from tests.diagnosis.asking import diagnosis_of
from tests.probes.kernels import broken


def tiled(tensor, group):
    return tensor.repeat(1, group, 1, 1)


def raw(tensor):
    """The tensor as a kernel reads it that ignores strides."""
    return tensor.as_strided(tensor.shape, torch.empty(tensor.shape).stride())


def last_stride_one(tensor):
    return tensor.as_strided(tensor.shape, (*tensor.stride()[:-1], 1))


def in_half(dots, factor, query, key):
    return (query.half() @ key.half().transpose(-1, -2)).float() * factor


def add_bool(mask, *_):
    return mask.float() if mask.dtype == torch.bool else mask


def as_head_mask(mask, query_shape, kv_shape, group):
    if mask.shape[0] == kv_shape[1] and mask.shape[1] == 1:
        return mask.transpose(0, 1).repeat_interleave(group, 1)
    return mask


def folded(mask, query_shape, kv_shape, group):
    if mask.shape[1] == 1:
        return mask
    return mask.unflatten(1, (group, -1)).transpose(1, 2).flatten(1, 2)


def wrap_index(mask, *_):
    full = mask.expand(*mask.shape[:2], mask.shape[2], mask.shape[3])
    flat = full.flatten(2)
    index = torch.arange(flat.shape[-1]) % 2**7
    return flat[..., index].view(full.shape)


def drop_key_tail(scores):
    whole = scores.shape[-1] // 8 * 8 or scores.shape[-1]
    scores = scores.clone()
    scores[..., whole:] = -math.inf
    return scores.softmax(-1)


def naive(scores):
    weights = scores.exp()
    return weights / weights.sum(-1, keepdim=True)


def fp16_sum(right, probs, value, query):
    weights = (probs / probs.amax(-1, keepdim=True)).half()
    total = (weights.float() @ value.float()).half().float()
    return total / weights.float().sum(-1, keepdim=True)


def stuck_maximum(scores):
    lowest = torch.finfo(torch.float32).min
    dead = (scores <= lowest).all(-1, keepdim=True)
    return torch.where(dead, math.nan, scores.softmax(-1))


def batch_from_ten(query, key, value):
    index = torch.arange(len(query)) % 10
    return query, key[index], value[index]


def group_order(output, *_):
    batch, heads = output.shape[:2]
    return output.view(batch, heads // 3, 3, *output.shape[2:]).transpose(1, 2).flatten(1, 2)


GROUPED = Case(num_kv_heads=2, group_size=2)
MASKED = Case(q_len=2, kv_len=3, values="steps", mask=Mask(pattern="padding", size=2))
CAUSAL = Case(q_len=2, kv_len=3, values="steps", causal="lower_right")
PAIR = Case(kv_len=2, head_dim=4, values="normal")
LARGE = Case(kv_len=3, head_dim=4, values="normal", magnitude=30.0)

BUGS = {
    "HM-onnx-7274": (
        broken(expand_key=tiled, expand_value=tiled), GROUPED, "head-mapping",
        "query head 1 reads kv head 1, expected 0: the map is interleaved (h % num_kv_heads); "
        "if that is meant: --declare head_order=interleaved",
    ),
    "HM-jax-js-180 values": (
        broken(expand_value=tiled), GROUPED, "head-mapping", "of the values alone, query head 1",
    ),
    "HM-axlearn-842 keys": (
        broken(expand_key=tiled),
        Case(num_kv_heads=2, group_size=2, kv_len=2, values="normal"),
        "head-mapping", "of the keys alone, query head 1",
    ),
    "HM-nntile-347": (
        broken(output=group_order), Case(num_kv_heads=2, group_size=3), "head-mapping", "",
    ),
    "WOBO-transformers-39408": (
        broken(left=lambda k, d, left: k >= d - left - 1),
        Case(q_len=3, kv_len=3, values="steps", window=2),
        "window", "window 2 keeps 3 keys, expected 2 including self",
    ),
    "WOBO-maxtext-4289": (
        broken(left=lambda k, d, left: k >= d - left - 1),
        Case(q_len=1, kv_len=2, values="steps", window=1),
        "window", "window 1 keeps 2 keys, expected 1 including self",
    ),
    "WOBO-sglang-31501": (
        broken(left=lambda k, d, left: k >= (d - left) // 2 * 2),
        Case(q_len=4, kv_len=4, values="steps", window=2),
        "window", "the window starts at a multiple of 2 keys, expected at the exact key",
    ),
    "MS-jax-32300": (
        broken(left=lambda k, d, left: k >= 0, right=lambda k, d, r: k >= 0),
        Case(q_len=3, kv_len=3, values="steps", window=(0, 0)),
        "window", "the window is ignored",
    ),
    "CA-TransformerEng-3528": (
        broken(left=lambda k, d, left: k > k),
        Case(q_len=3, kv_len=3, values="steps", causal="lower_right", window=2),
        "window", "the window hides every key",
    ),
    "SC-pytorch-181133": (
        broken(operands=lambda q, k, v: (raw(q), raw(k), raw(v))),
        Case(num_kv_heads=3, q_len=3, kv_len=3, head_dim=4, values="normal", memory="bshd"),
        "strides", "right on contiguous tensors with the same numbers, wrong on bshd ones: "
        "strides are ignored: query and key and value (bshd) read as if contiguous",
    ),
    "SC-pytorch-187504": (
        broken(operands=lambda q, k, v: (last_stride_one(q), k, v)),
        Case(q_len=3, kv_len=3, head_dim=2, values="normal", memory="transposed"),
        "strides", "the last stride of query (transposed) is taken to be 1",
    ),
    "CA-keras-23038": (
        broken(causal=lambda k, d, *_: k >= 0), CAUSAL, "causal-alignment",
        "the causal flag is ignored",
    ),
    "CA-Qwen-979": (
        broken(causal=lambda k, d, rows, q, n: k <= (d if q == n else d + 99)),
        CAUSAL, "causal-alignment", "the causal flag is ignored where q_len != kv_len",
    ),
    "CA-executorch-4066": (
        broken(causal=lambda k, d, rows, *_: k <= rows), CAUSAL, "causal-alignment",
        "causal masking is anchored upper-left, expected lower-right; "
        "if that is meant: --declare causal=upper_left",
    ),
    "CA-onnx-8054": (
        broken(diagonal=lambda right, rows, length, q, n: rows + n - q),
        Case(q_len=2, kv_len=4, values="steps", causal="lower_right", kv_lengths=(3,)),
        "causal-alignment", "ends at kv_len, expected at each row's kv_length",
    ),
    "CA-flashinfer-348": (
        broken(causal=lambda k, d, *_: k < d), CAUSAL, "causal-alignment",
        "off by one: it hides the diagonal key",
    ),
    "CA-xformers-103": (
        broken(causal=lambda k, d, *_: k >= 0),
        Case(q_len=2, kv_len=2, values="steps", causal="lower_right"),
        "causal-alignment", "the causal flag is ignored",
    ),
    "S-vit-pytorch-65": (
        broken(scale=lambda f, q, s: (q.shape[1] * q.shape[-1]) ** -0.5),
        Case(num_kv_heads=2, kv_len=2, head_dim=4, values="normal"),
        "scale", "scores are scaled by 1/sqrt(num_heads * head_dim), the model dim",
    ),
    "S-pytorch-174361": (
        broken(scale=lambda f, q, s: q.shape[-1] ** -0.5), PAIR.but(scale=1.0),
        "scale", "the given scale is ignored",
    ),
    "CDO-TensorRT-4328": (
        broken(scale=lambda f, q, s: f * f), PAIR, "scale", "the scale is applied twice",
    ),
    "scale padded": (
        broken(scale=lambda f, q, s: 8**-0.5), PAIR.but(head_dim=5), "scale", "padded head_dim",
    ),
    "scale log2e": (
        broken(scale=lambda f, q, s: f * 1.4426950408889634), PAIR, "scale", "factor log2(e)",
    ),
    "scale unnamed": (
        broken(scale=lambda f, q, s: f * 1.1), PAIR, "scale", "1.1 times the expected scale",
    ),
    "S-vllm-metal-665": (
        broken(softcap=lambda s, c, bias: s), LARGE.but(softcap=5.0), "softcap",
        "the softcap of 5 is ignored",
    ),
    "softcap after scale": (
        broken(softcap=lambda s, c, bias: torch.tanh(s / c)), LARGE.but(softcap=5.0), "softcap",
        "tanh is not multiplied by the softcap",
    ),
    "DAO-tinygrad-4985": (
        broken(scores=in_half),
        Case(kv_len=2, head_dim=4, dtype="float16", values="normal", magnitude=300.0,
             plants=(("key", 0, 0, 600.0),)),
        "overflow", "q.k goes beyond the largest float16, 65504, before it is scaled",
    ),
    "DAO-llama.cpp-7805": (
        broken(scores=in_half),
        Case(kv_len=1, head_dim=4, dtype="float16",
             plants=(("query", 0, 0, 300.0), ("key", 0, 0, 300.0))),
        "overflow", "q.k goes beyond the largest float16",
    ),
    "DAO-ik_llama.cpp-1196": (
        broken(output=fp16_sum),
        Case(kv_len=128, dtype="float16", values="zero",
             plants=tuple(("value", 0, j, 600.0) for j in range(128))),
        "overflow", "the sum of the values overflows float16",
    ),
    "no maximum": (
        broken(probabilities=naive),
        Case(kv_len=2, head_dim=4, plants=(("query", 0, 0, 30.0), ("key", 0, 0, 30.0))),
        "overflow", "the maximum is not subtracted",
    ),
    "MS-openvino-31630": (
        broken(mask=add_bool), MASKED, "mask-semantics", "added to the scores as 0 and 1",
    ),
    "mask ignored": (
        broken(mask=lambda m, *_: torch.ones_like(m)), MASKED, "mask-semantics",
        "the bool mask is ignored",
    ),
    "mask inverted": (
        broken(mask=lambda m, *_: ~m), MASKED, "mask-semantics",
        "True in the bool mask hides a key",
    ),
    "CDO-torch-spyre-4526": (
        broken(mask=lambda m, *_: torch.zeros_like(m)),
        Case(kv_len=2, values="steps", mask=Mask(pattern="padding", form="float")),
        "mask-semantics", "the float mask is ignored",
    ),
    "B-mlx-lm-1467": (
        broken(mask=as_head_mask),
        Case(batch_size=2, num_kv_heads=2, group_size=2, q_len=2, kv_len=2, values="steps",
             mask=Mask(pattern="padding", axes="b", size=2)),
        "broadcasting", "the mask of batch row b is applied to kv head b",
    ),
    "B-torch-xpu-ops-5090": (
        broken(mask=folded),
        Case(num_kv_heads=2, group_size=3, q_len=2, kv_len=4, values="steps",
             mask=Mask(pattern="random", axes="hq", size=50, seed=3)),
        "broadcasting", "the head axis of the mask is folded",
    ),
    "FMR-pytorch-109517": (
        broken(probabilities=stuck_maximum),
        Case(q_len=2, kv_len=2, values="steps",
             mask=Mask(form="float", hidden="finfo.min", empty_rows=1)),
        "fully-masked-row", "holds NaN",
    ),
    "TA-mlir-air-1427": (
        broken(probs=lambda p, keep: torch.full_like(p, 1 / p.shape[-1])),
        Case(kv_len=3, head_dim=2, values="normal"), "wrong-operand", "the mean of",
    ),
    "HDOTT-triton-621": (
        broken(operands=lambda q, k, v: (
            torch.where(torch.arange(q.shape[-1]) < 4, q, 0), k, v)),
        Case(kv_len=2, head_dim=5, values="normal"), "head-dim-tail",
        "only the first 4 of 5 channels of query and key count",
    ),
    "HDOTT-pytorch-162588": (
        broken(mask=wrap_index),
        Case(q_len=9, kv_len=15, values="steps",
             mask=Mask(pattern="random", axes="q", size=50, seed=1)),
        "head-dim-tail", "the flat index into the mask wraps at 2**7",
    ),
    "key tail": (
        broken(probabilities=drop_key_tail),
        Case(kv_len=9, values="steps"), "head-dim-tail",
        "keys beyond the last full tile of 8 do not count: 1 of 9",
    ),
    "AS-vllm-metal-550": (
        broken(sink=lambda e, *_: torch.zeros_like(e)), Case(kv_len=2, sinks=True), "sinks",
        "the sinks of 1 heads are ignored",
    ),
    "sinks scaled": (
        broken(sink=lambda e, s, top, f: torch.exp(s[None, :, None, None] * f - top)),
        Case(kv_len=2, head_dim=4, values="normal", sinks=True), "sinks",
        "the sinks are multiplied by the scale",
    ),
    "PV-coremltools-2650": (
        broken(operands=batch_from_ten), Case(batch_size=11, kv_len=2, values="normal"),
        "batch-dependence", "b % 10",
    ),
    "kv_lengths ignored": (
        broken(lengths=lambda n, kv_len: torch.full((len(n), 1, 1, 1), kv_len)),
        Case(kv_len=3, values="steps", kv_lengths=(2,)), "padding", "kv_lengths is ignored",
    ),
    "softmax over heads": (
        broken(probabilities=lambda s: s.softmax(1)), Case(num_kv_heads=2, kv_len=3),
        "head-mixing", "the softmax runs over the heads",
    ),
    "heads mixed": (
        broken(probs=lambda p, keep: p.flip(1)),
        Case(num_kv_heads=3, kv_len=2, values="normal"), "head-mixing",
        "the probabilities of one head meet the values of another",
    ),
    "reads BSHD": (
        lambda q, k, v: broken()(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
        .transpose(1, 2),
        Case(num_kv_heads=2, q_len=3, kv_len=3, head_dim=2, values="normal"), "layout",
        "--declare layout=BSHD",
    ),
    "bf16 inside": (
        broken(scores=lambda dots, f, q, k: (dots * f).bfloat16().float()),
        LARGE, "precision", "within that of profile",
    ),
    "all in bfloat16": (
        lambda q, k, v: ((q @ k.mT * q.shape[-1] ** -0.5).bfloat16().softmax(-1) @ v.bfloat16())
        .float(),
        LARGE, "precision", "within that of profile bf16_inside",
    ),
    "K as V": (
        broken(operands=lambda q, k, v: (q, k, k)), Case(), "wrong-operand",
        "the keys are used as values",
    ),
}  # fmt: skip


# The same mistake as one that runs by default, on another case.
SAME = ("WOBO-maxtext-4289", "CA-xformers-103", "DAO-llama.cpp-7805")


@pytest.mark.parametrize(
    "bug", [pytest.param(bug, marks=[pytest.mark.slow] if bug in SAME else []) for bug in BUGS]
)
def test_the_mistake_is_named(bug):
    kernel, case, kind, fragment = BUGS[bug]
    facts = {"profile": "flash"} if kind == "overflow" else {}  # where scores must not overflow
    found = diagnosis_of(kernel, case, **facts)
    assert (found.kind, fragment in found.text) == (kind, True), found
