"""Backward passes: right forwards whose gradients are wrong."""

from __future__ import annotations

from typing import Any

import torch

from equivalence.case import AttentionCase as Case
from tests.broken.attention_base import attend
from tests.broken.attention_memory import raw
from tests.broken.entry import Broken

GRADIENTS = {"gradients": True}


class _Attention(torch.autograd.Function):
    """Attention whose backward pass is written out: dV = P'dO, dS = P(dO V' - rowsum(dO o O))."""

    @staticmethod
    def forward(ctx: Any, query, key, value, causal, fault):
        names = ("attn_mask", "scale", "window", "window_size", "softcap", "sinks")
        given = {**dict.fromkeys((*names, "alibi_slopes", "kv_lengths")), "is_causal": causal}
        kept = {}
        steps = {"probs": lambda right, at: kept.setdefault("probs", right)}
        output, _ = attend(query, key, value, given, steps)
        ctx.save_for_backward(query, key, value, kept["probs"], output)
        ctx.fault = fault
        return output

    @staticmethod
    def backward(ctx: Any, upstream):
        query, key, value, probs, output = ctx.saved_tensors
        wide, fault = probs.dtype, ctx.fault
        if fault == "strides of dO":
            upstream = raw(upstream)
        group = query.shape[1] // key.shape[1]
        q, k, v = query.to(wide), key.to(wide), value.to(wide)
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        d_out = upstream.to(wide)
        if fault == "causal always":
            probs = probs.tril(probs.shape[-1] - probs.shape[-2])
        d_value = probs.mT @ d_out
        row = (d_out * output.to(wide)).sum(-1, keepdim=True)
        if fault == "half-written dO":
            row = (d_out * output.to(wide))[..., :-1].sum(-1, keepdim=True)
        if fault == "row sum forgotten":
            row = torch.zeros_like(row)
        d_scores = probs * (d_out @ v.mT - row) * query.shape[-1] ** -0.5
        if fault == "scale forgotten":
            d_scores = d_scores * query.shape[-1] ** 0.5
        d_query, d_key = d_scores @ k, d_scores.mT @ q
        d_key, d_value = (_group_sum(x, group, fault) for x in (d_key, d_value))
        if fault == "strides of K" and not key.is_contiguous():
            d_key = torch.rand_like(d_key)
        grads = zip((d_query, d_key, d_value), (query, key, value), strict=True)
        return *(grad.to(like.dtype) for grad, like in grads), None, None


def _group_sum(per_head, group, fault):
    apart = per_head.unflatten(1, (-1, group))
    return apart[:, :, 0] if fault == "first of the group" else apart.sum(2)


def backward_with(fault):
    def kernel(query, key, value, *, is_causal=False):
        if query.shape[1] % key.shape[1]:
            raise ValueError("heads do not divide")
        return _Attention.apply(query, key, value, is_causal, fault)

    return kernel


def _entry(name, fault, smallest, *rows, **smallest_in):
    return Broken(
        name=name,
        rows=rows,
        kernel=backward_with(fault),
        facts=GRADIENTS,
        laws=("gradients-agree",),
        smallest=smallest,
        smallest_in=smallest_in,
        diagnoses=("gradient",),
    )


GRADIENT = (
    _entry("group_not_summed", "first of the group", Case(group_size=2), "ATT-G-levanter-449"),
    _entry("causal_flag_not_read", "causal always", Case(q_len=2), "ATT-CA-triton-4541"),
    _entry(
        "strides_of_the_upstream_ignored",
        "strides of dO",
        Case(q_len=2, memory="sliced"),
        "ATT-G-flash-attentio-355",
    ),
    _entry(
        "row_sum_of_half_a_gradient",
        "half-written dO",
        Case(values="one_hot"),
        "ATT-D-flash-attentio-2481",
    ),
    _entry(
        "gradient_in_the_strides_of_the_key",
        "strides of K",
        Case(kv_len=2, memory="sliced"),
        "ATT-G-pytorch-146377",
    ),
    _entry("row_sum_forgotten", "row sum forgotten", Case(values="one_hot")),
    _entry(
        "scale_forgotten_in_the_backward",
        "scale forgotten",
        Case(kv_len=2, head_dim=2, values="one_hot"),
        bfloat16=Case(kv_len=2, head_dim=3, values="one_hot"),
    ),
)
