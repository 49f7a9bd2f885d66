"""An eager attention kernel with a named spot for each mistake that the tests plant."""

from __future__ import annotations

import math

import torch

NO_WINDOW = (-1, -1)


def eager(
    query,
    key,
    value,
    *,
    attn_mask=None,
    is_causal=False,
    scale=None,
    window=None,
    window_size=NO_WINDOW,
    softcap=None,
    sinks=None,
    kv_lengths=None,
    alibi_slopes=None,
    enable_gqa=False,
    fault=None,
):
    """Plain attention; ``fault`` names the step to replace: {step: function}."""
    fault = fault or {}

    def step(name, right, *args):
        return fault[name](*args) if name in fault else right

    group = query.shape[1] // key.shape[1]
    if query.shape[1] % key.shape[1]:
        raise ValueError("uneven heads")
    kv_shape = key.shape
    query, key, value = step("operands", (query, key, value), query, key, value)
    key = step("expand_key", key.repeat_interleave(group, dim=1), key, group)
    value = step("expand_value", value.repeat_interleave(group, dim=1), value, group)
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    factor = step("scale", factor, factor, query, scale)
    dots = query.to(wide) @ key.to(wide).transpose(-1, -2)
    scores = step("scores", dots * factor, dots, factor, query, key)
    bias = attn_mask if attn_mask is not None and attn_mask.dtype != torch.bool else None
    if softcap:
        capped = softcap * torch.tanh(scores / softcap)
        scores = step("softcap", capped, scores, softcap, bias)
    q_len, kv_len = scores.shape[-2:]
    rows = torch.arange(q_len)[:, None]
    keys = torch.arange(kv_len)[None, :]
    length = torch.full((query.shape[0], 1, 1, 1), kv_len)
    if kv_lengths is not None:
        length = step("lengths", kv_lengths[:, None, None, None], kv_lengths, kv_len)
    right_diagonal = rows + length - q_len
    diagonal = step("diagonal", right_diagonal, right_diagonal, rows, length, q_len, kv_len)
    keep = (keys < length).expand(scores.shape).clone()
    if is_causal:
        keep = keep & step("causal", keys <= diagonal, keys, diagonal, rows, q_len, kv_len)
    left, right = window_size if window is None else (window - 1, 0)
    if left >= 0:
        keep = keep & step("left", keys >= diagonal - left, keys, diagonal, left)
    if right >= 0:
        keep = keep & step("right", keys <= diagonal + right, keys, diagonal, right)
    if attn_mask is not None:
        attn_mask = step("mask", attn_mask, attn_mask, query.shape, kv_shape, group)
    if alibi_slopes is not None:
        scores = scores - alibi_slopes[None, :, None, None].to(wide) * (keys - diagonal).abs()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        keep = keep & attn_mask
    elif attn_mask is not None:
        scores = scores + attn_mask.to(wide)
    hidden = fault.get("hidden", -math.inf)
    scores = scores.masked_fill(~keep, hidden)
    if "probabilities" in fault:
        probs = fault["probabilities"](scores)
    else:
        top = scores.amax(-1, keepdim=True)
        if sinks is not None and kv_len:
            top = torch.maximum(top, sinks[None, :, None, None].to(wide))
        top = torch.where(top == -math.inf, 0.0, top)
        weights = torch.exp(scores - top)
        total = weights.sum(-1, keepdim=True)
        if sinks is not None:
            extra = torch.exp(sinks[None, :, None, None].to(wide) - top)
            total = total + step("sink", extra, extra, sinks, top, factor)
        probs = weights / torch.where(total == 0, 1.0, total)
    probs = step("probs", probs, probs, keep)
    output = probs.to(query.dtype).to(wide) @ value.to(wide)
    return step("output", output, output, probs, value, query).to(query.dtype)


def broken(**fault):
    """The kernel with the given steps replaced, and the signature of the right one."""

    def kernel(
        query, key, value, *, attn_mask=None, is_causal=False, scale=None, window=None,
        window_size=NO_WINDOW, softcap=None, sinks=None, kv_lengths=None, alibi_slopes=None,
    ):  # fmt: skip
        return eager(
            query, key, value, attn_mask=attn_mask, is_causal=is_causal, scale=scale,
            window=window, window_size=window_size, softcap=softcap, sinks=sinks,
            kv_lengths=kv_lengths, alibi_slopes=alibi_slopes, fault=fault,
        )  # fmt: skip

    return kernel
