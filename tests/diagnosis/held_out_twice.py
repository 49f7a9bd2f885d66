"""A second set of broken kernels, written after the rules were changed and fixed again.

Each wraps torch's own scaled_dot_product_attention, or spells the scores out by einsum, and makes
one mistake on the way in or out; (kernel, options that are drawn, kinds that name it).
"""

from __future__ import annotations

import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa

SEED = torch.Generator().manual_seed(0)


def plain(
    query, key, value, *, attn_mask=None, is_causal=False, scale=None, window=None,
    window_size=(-1, -1), softcap=None, sinks=None, kv_lengths=None, fault="",
):  # fmt: skip
    """Everything by einsum, with a bias that holds mask, window and lengths."""
    batch, heads, q_len, dim = query.shape
    kv_heads, kv_len = key.shape[1:3]
    group = heads // kv_heads
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    head = torch.arange(heads)
    of = head // group
    if fault == "kv head modulo group":
        of = (head % group).clamp(max=kv_heads - 1)
    if fault == "kv head plus one clipped":
        of = (of + 1).clamp(max=kv_heads - 1)
    if fault == "first kv head only":
        of = torch.zeros_like(of)
    k, v = key[:, of].to(wide), value[:, of].to(wide)
    if fault == "tiled by expand":
        k, v = (
            x[:, None].expand(-1, group, -1, -1, -1).reshape(batch, heads, *x.shape[2:]).to(wide)
            for x in (key, value)
        )
    q = query.to(wide)
    if fault == "last channel dropped":
        q = torch.cat([q[..., :-1], 0 * q[..., -1:]], -1)
    if fault == "last value channel zero":
        v = torch.cat([v[..., :-1], 0 * v[..., -1:]], -1)
    if fault == "key channels rolled":
        k = k.roll(1, -1)
    if fault == "query of batch 0":
        q = q[:1].expand_as(q)
    if fault == "tf32":
        q, k = q.half().to(wide), k.half().to(wide)
    if fault == "values late from key 4":
        v = torch.cat([v[:, :, :4], v[:, :, 3:-1]], 2) if kv_len > 4 else v
    if fault == "value strides":
        v = value.as_strided(value.shape, torch.empty(value.shape).stride())[:, of].to(wide)
    if fault == "key strides":
        k = key.as_strided(key.shape, torch.empty(key.shape).stride())[:, of].to(wide)
    factor = dim**-0.5 if scale is None else scale
    factor = {
        "scale by kv width": (kv_heads * dim) ** -0.5,
        "scale one over dim": 1 / dim,
        "default scale squared": factor**2,
        "scale plus 2 percent": factor * 1.02,
        "scale ignored": dim**-0.5,
    }.get(fault, factor)
    scores = torch.einsum("bhqd,bhkd->bhqk", q, k) * factor
    if fault == "scores bf16":
        scores = scores.bfloat16().to(wide)
    if softcap:
        scores = {
            "softcap squared": lambda s: softcap * torch.tanh(s / softcap**2),
            "softcap inverse": lambda s: torch.tanh(s * softcap) / softcap,
            "softcap hard": lambda s: s.clamp(-softcap, softcap),
            "softcap only positive": lambda s: torch.where(
                s > 0, softcap * torch.tanh(s / softcap), s
            ),
            "softcap none": lambda s: s,
        }.get(fault, lambda s: softcap * torch.tanh(s / softcap))(scores)
    length = torch.full((batch, 1, 1, 1), kv_len)
    if kv_lengths is not None:
        length = kv_lengths[:, None, None, None]
        if fault == "lengths ignored":
            length = 0 * length + kv_len
        if fault == "length of next row":
            length = length.roll(-1, 0)
        if fault == "lengths in fours":
            length = (length + 3) // 4 * 4
        if fault == "length minus one":
            length = length - 1
    rows, keys = torch.arange(q_len)[:, None], torch.arange(kv_len)[None, :]
    diagonal = rows + length - q_len
    keep = (keys < length).expand(scores.shape).clone()
    if fault == "first of the keys is lost":
        keep = keep & (keys > 0)
    if is_causal:
        corner = {
            "upper left": rows,
            "no diagonal": diagonal - 1,
            "reversed rows": q_len - 1 - rows + kv_len - q_len,
        }.get(fault, diagonal)
        skipped = fault == "causal lost with a mask" and attn_mask is not None
        if fault == "causal only if square":
            skipped = q_len != kv_len
        if not skipped:
            keep &= keys <= corner
    left, right = window_size if window is None else (window - 1, 0)
    left += fault == "window left plus one" and left >= 0
    if fault == "window centred" and window is not None:
        left = right = window // 2
    if fault == "window lost in decode" and q_len == 1:
        left = right = -1
    if fault == "window left only":
        right = -1
    if fault == "window doubles" and left > 0:
        left *= 2
    keep &= (keys >= diagonal - left) if left >= 0 else keep
    keep &= (keys <= diagonal + right) if right >= 0 else keep
    if attn_mask is not None:
        mask = attn_mask
        if fault == "mask rows by repeat" and mask.shape[0] == batch and mask.shape[1] == 1:
            mask = mask.repeat(heads, 1, 1, 1).view(batch, heads, *mask.shape[2:])
        if fault == "mask of last head":
            mask = mask[:, -1:]
        if fault == "mask rows reversed":
            mask = mask.flip(2)
        if fault == "mask of the next row":
            mask = mask.roll(-1, 2)
        lost = fault == "mask lost with causal" and is_causal
        if mask.dtype == torch.bool and not lost:
            if fault == "bool as minus one":
                scores = scores - (~mask).to(wide)
            elif fault == "hidden keys score zero":
                scores = torch.where(mask, scores, 0.0)
            else:
                keep = keep & mask
        elif not lost:
            bias = mask.to(wide)
            if fault == "bias times log2e":
                bias = bias * 1.4426950408889634
            if fault == "bias negated":
                bias = torch.where(bias == -torch.inf, bias, -bias)
            scores = scores + bias
    scores = scores.masked_fill(~keep, -torch.inf)
    if fault == "four zero keys":
        pad = -kv_len % 4
        scores = torch.cat([scores, scores.new_zeros(*scores.shape[:3], pad)], -1)
        v = torch.cat([v, v.new_zeros(*v.shape[:2], pad, v.shape[3])], 2)
    if sinks is not None:
        logits = sinks.to(wide)[None, :, None, None].expand(batch, -1, q_len, 1)
        logits = {
            "sink of head 0": logits[:, :1].expand_as(logits),
            "sinks negative": -logits,
            "sinks none": logits - torch.inf,
            "sinks halved": logits / 2,
        }.get(fault, logits)
        scores = torch.cat([scores, logits], -1)
        tail = v.mean(2, keepdim=True) if fault == "sink with a value" else 0 * v[:, :, :1]
        v = torch.cat([v, tail], 2)
    top = scores.amax(-1, keepdim=True)
    weights = torch.exp(scores - torch.where(top == -torch.inf, 0.0, top))
    if fault == "softmax over queries":
        weights = torch.where(weights.sum(-2, keepdim=True) > 0, weights, 0.0)
        total = weights.sum(-2, keepdim=True)
    else:
        total = weights.sum(-1, keepdim=True)
    if fault == "total plus one":
        total = total + 1
    weights = weights / torch.where(total == 0, 1.0, total)
    if fault == "weights in half":
        weights = weights.bfloat16().to(wide)
    if fault == "dropout left on":
        weights = weights * (torch.rand(weights.shape, generator=SEED) > 0.2)
    output = torch.einsum("bhqk,bhkd->bhqd", weights, v)
    if fault == "pairs of heads swapped" and heads % 2 == 0:
        output = output[:, head ^ 1]
    if fault == "group averaged":
        output = output.unflatten(1, (kv_heads, group))
        output = output.mean(2, keepdim=True).expand(-1, -1, group, -1, -1).flatten(1, 2)
    if fault == "rows reversed":
        output = output.flip(2)
    return output.to(query.dtype)


def through_sdpa(query, key, value, *, is_causal=False, scale=None):
    """torch's causal flag is anchored upper-left."""
    return sdpa(query, key, value, is_causal=is_causal, scale=scale, enable_gqa=True)


def faulty(fault):
    """The kernel with one fault and the signature of the right one."""
    if fault == "sdpa causal":
        return through_sdpa

    def kernel(query, key, value, *, attn_mask=None, is_causal=False, scale=None, window=None,
               window_size=(-1, -1), softcap=None, sinks=None, kv_lengths=None):  # fmt: skip
        return plain(
            query, key, value, attn_mask=attn_mask, is_causal=is_causal, scale=scale,
            window=window, window_size=window_size, softcap=softcap, sinks=sinks,
            kv_lengths=kv_lengths, fault=fault,
        )  # fmt: skip

    return kernel


HELD_OUT = {
    "kv head modulo group": ((), ("head-mapping",)),
    "kv head plus one clipped": ((), ("head-mapping",)),
    "first kv head only": ((), ("head-mapping",)),
    "tiled by expand": ((), ("head-mapping",)),
    "pairs of heads swapped": ((), ("head-mapping",)),
    "group averaged": ((), ("head-mixing",)),
    "last channel dropped": ((), ("head-dim-tail",)),
    "last value channel zero": ((), ("head-dim-tail",)),
    "key channels rolled": ((), ("head-dim-tail", "wrong-operand", "layout")),
    "query of batch 0": ((), ("batch-dependence",)),
    "tf32": ((), ("precision",)),
    "scores bf16": ((), ("precision",)),
    "weights in half": ((), ("precision",)),
    "values late from key 4": ((), ("wrong-operand", "head-dim-tail")),
    "value strides": (("memory",), ("strides",)),
    "key strides": (("memory",), ("strides",)),
    "scale by kv width": ((), ("scale",)),
    "scale one over dim": ((), ("scale",)),
    "default scale squared": ((), ("scale",)),
    "scale plus 2 percent": ((), ("scale",)),
    "scale ignored": (("scale",), ("scale",)),
    "softcap squared": (("softcap",), ("softcap", "scale")),
    "softcap inverse": (("softcap",), ("softcap",)),
    "softcap hard": (("softcap",), ("softcap",)),
    "softcap only positive": (("softcap",), ("softcap",)),
    "softcap none": (("softcap", "mask"), ("softcap",)),
    "lengths ignored": (("kv_lengths", "causal"), ("padding",)),
    "length of next row": (("kv_lengths",), ("padding",)),
    "lengths in fours": (("kv_lengths",), ("padding",)),
    "length minus one": (("kv_lengths",), ("padding",)),
    "first of the keys is lost": ((), ("head-dim-tail",)),
    "upper left": (("causal", "scale"), ("causal-alignment",)),
    "no diagonal": (("causal",), ("causal-alignment",)),
    "reversed rows": (("causal",), ("causal-alignment",)),
    "causal lost with a mask": (("causal", "mask"), ("causal-alignment",)),
    "causal only if square": (("causal",), ("causal-alignment",)),
    "sdpa causal": (("causal",), ("causal-alignment",)),
    "window left plus one": (("window",), ("window",)),
    "window centred": (("window",), ("window",)),
    "window lost in decode": (("window",), ("window",)),
    "window left only": (("window",), ("window",)),
    "window doubles": (("window",), ("window",)),
    "mask rows by repeat": (("mask",), ("broadcasting",)),
    "mask of last head": (("mask",), ("broadcasting",)),
    "mask rows reversed": (("mask",), ("mask-semantics",)),
    "mask of the next row": (("mask",), ("mask-semantics", "broadcasting")),
    "mask lost with causal": (("mask", "causal"), ("mask-semantics",)),
    "bool as minus one": (("mask",), ("mask-semantics",)),
    "hidden keys score zero": (("mask",), ("mask-semantics",)),
    "bias times log2e": (("mask",), ("mask-semantics",)),
    "bias negated": (("mask",), ("mask-semantics",)),
    "four zero keys": ((), ("head-dim-tail",)),
    "sink of head 0": (("sinks",), ("sinks",)),
    "sinks negative": (("sinks",), ("sinks",)),
    "sinks none": (("sinks",), ("sinks",)),
    "sinks halved": (("sinks",), ("sinks",)),
    "sink with a value": (("sinks",), ("sinks",)),
    "softmax over queries": ((), ("wrong-operand", "head-mixing")),
    "total plus one": ((), ("sinks", "wrong-operand", "head-dim-tail")),
    "dropout left on": ((), ("determinism",)),
    "rows reversed": ((), ("wrong-operand",)),
}  # fmt: skip
