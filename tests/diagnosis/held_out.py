"""Broken kernels written after the rules of the diagnosis were frozen; (kernel, options, kinds).

The kernels here are built another way than the eager one that the rules were written against: an
online softmax over blocks, and a grouped matmul without repeated heads.
"""

from __future__ import annotations

import math

import torch

TINY = 1e-30


def online(
    query, key, value, *, attn_mask=None, is_causal=False, scale=None, window=None,
    window_size=(-1, -1), softcap=None, sinks=None, kv_lengths=None, block=8, fault="",
):  # fmt: skip
    """Flash-like: blocks of keys, a running maximum and a running sum, grouped by view."""
    batch, heads, q_len, dim = query.shape
    kv_heads, kv_len = key.shape[1:3]
    group = heads // kv_heads
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    factor = dim**-0.5 if scale is None else scale
    if fault == "scale from value dim times two":
        factor = (2 * value.shape[-1]) ** -0.5
    if fault == "scale reciprocal":
        factor = 1 / factor
    if fault == "scale off by 1e-3":
        factor *= 1.001
    if fault == "group first":
        q = query.view(batch, group, kv_heads, q_len, dim).transpose(1, 2).to(wide)
    else:
        q = query.reshape(batch, kv_heads, group, q_len, dim).to(wide)
    k, v = key[:, :, None].to(wide), value[:, :, None].to(wide)
    if fault == "value heads reversed":
        v = v.flip(1)
    if fault == "key heads rolled":
        k = k.roll(1, 1)
    if fault == "batch rolled":
        k, v = k.roll(1, 0), v.roll(1, 0)
    if fault == "odd channels only":
        q = torch.where(torch.arange(dim) < dim // 2 * 2, q, 0)
    if fault == "first 8 channels":
        q = torch.where(torch.arange(dim) < 8, q, 0)
    if fault == "bfloat16 query":
        q = q.bfloat16().to(wide)
    if fault == "bfloat16 value":
        v = v.bfloat16().to(wide)
    length = torch.full((batch, 1, 1, 1), kv_len)
    if kv_lengths is not None:
        length = kv_lengths[:, None, None, None]
    if kv_lengths is not None and fault == "longest length":
        length = length.amax().expand_as(length)
    if kv_lengths is not None and fault == "length plus one":
        length = length + 1
    rows, keys = torch.arange(q_len)[:, None], torch.arange(kv_len)[None, :]
    diagonal = rows + length - q_len
    if fault == "diagonal from kv_len":
        diagonal = rows + kv_len - q_len + 0 * length
    keep = (keys < length).expand(batch, heads, q_len, kv_len).clone()
    if is_causal:
        corner = rows if fault == "causal from zero" else diagonal
        limit = corner + {"causal strict": -1, "causal lenient": 1}.get(fault, 0)
        if fault != "causal for prefill only" or q_len > 1:
            keep &= keys <= limit
        if fault == "causal by blocks of 4":
            keep |= (keys // 4 <= diagonal // 4) & (keys < length)
    left, right = window_size if window is None else (window - 1, 0)
    if fault == "window two sided" and window is not None:
        right = left
    if fault == "window minus one" and left > 0:
        left -= 1
    if fault == "window swapped":
        left, right = right, left
    if fault == "window right ignored":
        right = -1
    base = rows if fault == "window from zero" else diagonal
    if left >= 0:
        keep &= keys >= (base - left) // (4 if fault == "window tile 4" else 1) * (
            4 if fault == "window tile 4" else 1
        )
    if right >= 0:
        keep &= keys <= base + right
    bias = torch.zeros(1, 1, 1, 1, dtype=wide)
    if attn_mask is not None:
        mask = attn_mask
        if fault == "mask of batch 0":
            mask = mask[:1]
        if fault == "mask of kv head":
            mask = mask[:, torch.arange(heads) // group] if mask.shape[1] > 1 else mask
        if fault == "mask of row 0":
            mask = mask[:, :, :1]
        if fault == "mask transposed" and mask.shape[2] == mask.shape[3]:
            mask = mask.transpose(2, 3)
        if fault == "mask shifted":
            mask = mask.roll(1, 3)
        if mask.dtype == torch.bool:
            if fault == "bool times score":
                bias = torch.where(mask, 0.0, -2.0).to(wide)
            elif fault == "bool inverted":
                keep &= ~mask
            else:
                keep &= mask
        elif fault == "float mask as bool":
            keep &= mask == 0
        elif fault == "mask before scale":
            bias = mask.to(wide) * factor
        elif fault == "mask halved":
            bias = mask.to(wide) / 2
        elif fault != "float mask ignored":
            bias = mask.to(wide)
    keep = keep.view(batch, kv_heads, group, q_len, kv_len)
    if bias.shape[1] == heads and heads > 1:
        bias = bias.expand(batch, -1, -1, -1).reshape(batch, kv_heads, group, *bias.shape[2:])
    else:
        bias = bias[:, :, None]
    top = torch.full((*q.shape[:4], 1), -math.inf, dtype=wide)
    total = torch.zeros_like(top)
    output = torch.zeros(*q.shape[:4], value.shape[-1], dtype=wide)
    end = kv_len // block * block if fault == "whole blocks" and kv_len >= block else kv_len
    for start in range(0, end, block):
        part = slice(start, min(start + block, kv_len))
        scores = q @ k[..., part, :].mT * factor
        if fault == "dots in float16":
            scores = (q.half() @ k[..., part, :].half().mT).to(wide) * factor
        if softcap and fault != "softcap ignored":
            if fault == "softcap times two":
                scores = 2 * softcap * torch.tanh(scores / (2 * softcap))
            elif fault == "softcap on unscaled":
                scores = softcap * torch.tanh(scores / factor / softcap) * factor
            elif fault == "softcap after bias":
                scores = scores + bias[..., part] if bias.shape[-1] > 1 else scores + bias
                scores = softcap * torch.tanh(scores / softcap)
            else:
                scores = softcap * torch.tanh(scores / softcap)
        if not (softcap and fault == "softcap after bias"):
            scores = scores + (bias[..., part] if bias.shape[-1] > 1 else bias)
        scores = scores.masked_fill(~keep[..., part], -math.inf)
        higher = torch.maximum(top, scores.amax(-1, keepdim=True))
        safe = torch.where(higher == -math.inf, 0.0, higher)
        weights = torch.exp(scores - safe)
        if fault == "exp2":
            weights = torch.exp2(scores - safe)
        fade = torch.exp(torch.where(top == -math.inf, -math.inf, top - safe))
        if fault == "no fade":
            fade = torch.ones_like(fade)
        if fault == "exp2":
            fade = torch.exp2(torch.where(top == -math.inf, -math.inf, top - safe))
        total = total * fade + weights.sum(-1, keepdim=True)
        p = weights.bfloat16().to(wide) if fault == "bfloat16 weights" else weights
        output = output * fade + p @ v[..., part, :]
        top = higher
    if sinks is not None and fault != "sinks ignored":
        logits = sinks.to(wide).view(1, kv_heads, group, 1, 1)
        if fault == "sinks flipped":
            logits = sinks.to(wide).flip(0).view(1, kv_heads, group, 1, 1)
        if fault == "sinks scaled":
            logits = logits * factor
        safe = torch.where(top == -math.inf, 0.0, top)
        if fault == "sinks not shifted":
            safe = 0 * safe
        total = total + torch.exp(logits - safe)
    if fault == "last block only":
        pass
    output = output / total.clamp(min=TINY)
    if fault == "group first":
        return output.transpose(1, 2).reshape(batch, heads, q_len, -1).to(query.dtype)
    if fault == "group first out":
        output = output.transpose(1, 2)
    output = output.reshape(batch, heads, q_len, -1).to(query.dtype)
    if fault == "rows above 4 stay zero":
        output[:, :, 4:] = 0
    if fault == "launders":
        output = torch.nan_to_num(output)
    if fault == "heads averaged":
        output = output.mean(1, keepdim=True).expand_as(output)
    if fault == "bshd out":
        output = output.transpose(1, 2).reshape(output.shape)
    return output


def faulty(fault):
    """The kernel with one fault and the signature of the right one."""

    def kernel(query, key, value, *, attn_mask=None, is_causal=False, scale=None, window=None,
               window_size=(-1, -1), softcap=None, sinks=None, kv_lengths=None):  # fmt: skip
        return online(
            query, key, value, attn_mask=attn_mask, is_causal=is_causal, scale=scale,
            window=window, window_size=window_size, softcap=softcap, sinks=sinks,
            kv_lengths=kv_lengths, fault=fault,
        )  # fmt: skip

    return kernel


HELD_OUT = {
    "scale from value dim times two": ((), ("scale",)),
    "scale reciprocal": ((), ("scale",)),
    "scale off by 1e-3": ((), ("scale",)),
    "exp2": ((), ("scale",)),
    "group first": ((), ("head-mapping",)),
    "group first out": ((), ("head-mapping",)),
    "value heads reversed": ((), ("head-mapping",)),
    "key heads rolled": ((), ("head-mapping",)),
    "batch rolled": ((), ("batch-dependence",)),
    "odd channels only": ((), ("head-dim-tail",)),
    "first 8 channels": ((), ("head-dim-tail",)),
    "bfloat16 query": ((), ("precision",)),
    "bfloat16 value": ((), ("precision",)),
    "bfloat16 weights": ((), ("precision",)),
    "longest length": (("kv_lengths",), ("padding",)),
    "length plus one": (("kv_lengths",), ("padding",)),
    "diagonal from kv_len": (("kv_lengths", "causal"), ("causal-alignment", "window", "padding")),
    "causal from zero": (("causal",), ("causal-alignment",)),
    "causal strict": (("causal",), ("causal-alignment",)),
    "causal lenient": (("causal", "mask"), ("causal-alignment",)),
    "causal by blocks of 4": (("causal",), ("causal-alignment",)),
    "window two sided": (("window",), ("window",)),
    "window minus one": (("window", "causal"), ("window",)),
    "window swapped": (("window",), ("window",)),
    "window right ignored": (("window",), ("window",)),
    "window from zero": (("window",), ("window",)),
    "window tile 4": (("window",), ("window",)),
    "mask of batch 0": (("mask",), ("broadcasting",)),
    "mask of kv head": (("mask",), ("broadcasting",)),
    "mask of row 0": (("mask",), ("broadcasting", "mask-semantics")),
    "mask transposed": (("mask",), ("mask-semantics",)),
    "mask shifted": (("mask",), ("mask-semantics",)),
    "bool times score": (("mask",), ("mask-semantics",)),
    "bool inverted": (("mask",), ("mask-semantics",)),
    "float mask as bool": (("mask",), ("mask-semantics",)),
    "mask before scale": (("mask",), ("mask-semantics", "scale")),
    "mask halved": (("mask",), ("mask-semantics",)),
    "float mask ignored": (("mask", "causal"), ("mask-semantics",)),
    "whole blocks": ((), ("head-dim-tail",)),
    "softcap ignored": (("softcap", "scale"), ("softcap",)),
    "softcap times two": (("softcap",), ("softcap",)),
    "softcap on unscaled": (("softcap",), ("softcap",)),
    "softcap after bias": (("softcap", "mask"), ("softcap",)),
    "no fade": ((), ("lse-merge", "head-dim-tail", "unknown")),
    "sinks ignored": (("sinks",), ("sinks",)),
    "sinks flipped": (("sinks",), ("sinks",)),
    "sinks scaled": (("sinks", "scale"), ("sinks",)),
    "sinks not shifted": (("sinks",), ("sinks",)),
    "rows above 4 stay zero": ((), ("head-dim-tail",)),
    "heads averaged": ((), ("head-mixing",)),
    "bshd out": ((), ("layout",)),
}  # fmt: skip
