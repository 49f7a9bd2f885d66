"""A right attention kernel in named steps; a broken one replaces a step or two."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

Step = Callable[[Any, SimpleNamespace], Any]


def attend(query, key, value, options, steps):
    """Output ``[B, H, Sq, Dv]`` and log-sum-exp ``[B, H, Sq]``, float32 or wider inside.

    ``steps[name](right, at)`` replaces the result of the step called ``name``; ``at`` holds all
    that is known by then: the tensors, the sizes, the options as ``at.given``.
    """
    at = SimpleNamespace(given=dict(options), query=query, key=key, value=value)

    def step(name, right):
        setattr(at, name, steps[name](right, at) if name in steps else right)
        return getattr(at, name)

    at.batch, at.heads, at.q_len, at.dim = query.shape
    at.kv_heads, at.kv_len, at.v_dim = key.shape[1], key.shape[2], value.shape[3]
    if at.heads % at.kv_heads:
        raise ValueError(f"{at.heads} heads do not divide among {at.kv_heads}")
    at.group = at.heads // at.kv_heads
    given = step("given", at.given)
    query, key, value = step("operands", (query, key, value))
    head_of = torch.arange(at.heads) // at.group
    key = key[:, step("key_heads", head_of)]
    value = value[:, step("value_heads", head_of)]
    at.wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    factor = step("factor", at.dim**-0.5 if given["scale"] is None else given["scale"])
    dots = step("dots", query.to(at.wide) @ key.to(at.wide).transpose(-1, -2))
    scores = step("scores", dots * factor)
    if given["softcap"]:
        scores = step("capped", given["softcap"] * torch.tanh(scores / given["softcap"]))
    at.mask = mask = given["attn_mask"]
    if mask is not None:
        mask = step("mask", mask)
    keep = step("keep", _visible(at, given, mask, step).expand(scores.shape))
    if given["alibi_slopes"] is not None:
        distance = (torch.arange(at.kv_len) - at.diagonal).abs()
        slopes = given["alibi_slopes"].to(at.wide).view(1, -1, 1, 1)
        scores = scores + step("alibi", -slopes * distance)
    if mask is not None and mask.dtype != torch.bool:
        scores = step("biased", scores + mask.to(at.wide))
    scores = step("masked", scores.masked_fill(~keep, -math.inf))
    value = step("unread", value.masked_fill(~keep.any(-2).unsqueeze(-1), 0.0))
    output, lse = softmax_sum(scores, value, given["sinks"], step, at)
    return step("output", output).to(at.query.dtype), step("lse", lse)


def softmax_sum(scores, value, sinks, step, at):
    """The softmax of the scores, and the sum of the values that it weighs."""
    top = scores.amax(-1, keepdim=True) if at.kv_len else scores.sum(-1, keepdim=True) - math.inf
    if sinks is not None:
        at.sink = step("sink", sinks.to(at.wide).view(1, -1, 1, 1).expand(*top.shape))
        top = torch.maximum(top, at.sink)
    top = step("top", torch.where(top == -math.inf, 0.0, top))
    weights = step("weights", torch.exp(scores - top))
    total = step("total", weights.sum(-1, keepdim=True))
    lse = (top + total.log()).squeeze(-1)
    if sinks is not None:
        total = step("total_with_sink", total + torch.exp(at.sink - top))
    probs = step("probs", weights / torch.where(total == 0, 1.0, total))
    return probs @ value.to(at.wide), lse


def _visible(at, given, mask, step):
    keys, rows = torch.arange(at.kv_len), torch.arange(at.q_len).view(-1, 1)
    lengths = torch.full((1, 1, 1, 1), at.kv_len)
    if given["kv_lengths"] is not None:
        lengths = step("lengths", given["kv_lengths"].view(-1, 1, 1, 1))
    at.keys, at.rows, at.lengths = keys, rows, lengths
    diagonal = step("diagonal", rows + lengths - at.q_len)
    keep = (keys < lengths).expand(-1, -1, at.q_len, -1)
    if given["is_causal"]:
        keep = keep & step("causal", keys <= diagonal)
    sides = given["window_size"]
    if given["window"] is not None:
        sides = (given["window"] - 1, 0)
    if sides is not None:
        at.left, at.right = step("sides", sides)
        seen = torch.ones_like(keep)
        if at.left >= 0:
            seen = seen & step("from_left", keys >= diagonal - at.left)
        if at.right >= 0:
            seen = seen & step("to_right", keys <= diagonal + at.right)
        keep = keep & step("window", seen)
    if mask is not None:
        keep = keep & step("by_mask", mask if mask.dtype == torch.bool else mask > -math.inf)
    return keep


def broken(**steps: Step):
    """The kernel with the steps replaced; no steps: the right one. It returns its output alone."""

    def kernel(
        query,
        key,
        value,
        *,
        attn_mask=None,
        is_causal=False,
        scale=None,
        window=None,
        window_size=None,
        softcap=None,
        sinks=None,
        alibi_slopes=None,
        kv_lengths=None,
    ):
        options = {
            "attn_mask": attn_mask,
            "is_causal": is_causal,
            "scale": scale,
            "window": window,
            "window_size": window_size,
            "softcap": softcap,
            "sinks": sinks,
            "alibi_slopes": alibi_slopes,
            "kv_lengths": kv_lengths,
        }
        return attend(query, key, value, options, steps)[0]

    return kernel


def broken_with_lse(**steps: Step):
    """The same with its log-sum-exp as a second result, and fewer options."""

    def kernel(query, key, value, *, attn_mask=None, is_causal=False, kv_lengths=None):
        options = {
            "attn_mask": attn_mask,
            "is_causal": is_causal,
            "scale": None,
            "window": None,
            "window_size": None,
            "softcap": None,
            "sinks": None,
            "alibi_slopes": None,
            "kv_lengths": kv_lengths,
        }
        return attend(query, key, value, options, steps)

    return kernel


def without(**dropped: Any) -> Step:
    """A ``given`` step that overwrites options, as one that they never reached."""
    return lambda right, at: {**right, **dropped}


def where(condition: Callable[[SimpleNamespace], bool], change: Step) -> Step:
    """A step that is wrong on one path only: where ``condition`` holds."""
    return lambda right, at: change(right, at) if condition(at) else right
