"""Kernels that merge partial results by their log-sum-exp, and that hand it out."""

from __future__ import annotations

import math

import torch

from equivalence.case import AttentionCase as Case
from tests.broken.attention_base import broken, broken_with_lse
from tests.broken.entry import Broken

LSE = {"lse": "natural"}


def merged(size, *, part_lse=None, empty=None):
    """A ``probs`` step: slices of ``size`` keys, each with its own softmax, then one merge."""

    def merge(right, at):
        if not at.kv_len:
            return right
        parts, weights = [], []
        for start in range(0, at.kv_len, size):
            scores = at.masked[..., start : start + size]
            lse = scores.logsumexp(-1, keepdim=True)
            dead = lse == -math.inf
            part = torch.where(dead, 0.0, scores.softmax(-1))
            if empty is not None:
                part, lse = empty(part, lse, dead)
            parts.append(part)
            weights.append(lse if part_lse is None else part_lse(lse, start))
        stacked = torch.cat(weights, -1)
        top = stacked.amax(-1, keepdim=True)
        shares = (stacked - torch.where(top == -math.inf, 0.0, top)).exp()
        total = shares.sum(-1, keepdim=True)
        shares = shares / torch.where(total == 0, 1.0, total)
        both = [part * shares[..., i : i + 1] for i, part in enumerate(parts)]
        merged_probs = torch.cat(both, -1)
        if at.given["sinks"] is not None:
            merged_probs = merged_probs * right.sum(-1, keepdim=True)
        return merged_probs

    return merge


def stale_and_neutral_lse(part, lse, dead):
    """A slice without keys leaves what was in memory, with a log-sum-exp of 0."""
    return torch.where(dead, 1.0 / part.shape[-1], part), torch.where(dead, 0.0, lse)


def last_split_empty(right, at):
    """More splits than blocks: the accumulator of the last one was never written."""
    return right * (math.nan if at.kv_len > 1 and at.kv_len % 8 == 1 else 1.0)


SPLITS = (
    Broken(
        name="partial_lse_not_stored",
        rows=("ATT-SKLM-flashinfer-50",),
        kernel=broken(probs=merged(16, part_lse=lambda lse, start: torch.zeros_like(lse))),
        smallest=Case(kv_len=17, values="steps"),
        diagnoses=("lse-merge",),
    ),
    Broken(
        name="partial_lse_in_base_2",
        kernel=broken(probs=merged(16, part_lse=lambda lse, start: lse * math.log2(math.e))),
        smallest=Case(kv_len=17, values="steps"),
        diagnoses=("lse-merge",),
    ),
    Broken(
        name="empty_slices_weigh_one",
        rows=("ATT-SKLM-sglang-22688",),
        kernel=broken(probs=merged(4, empty=stale_and_neutral_lse)),
        smallest=Case(kv_len=5, kv_lengths=(1,)),
        diagnoses=("lse-merge", "padding"),
    ),
    Broken(
        name="last_split_never_written",
        rows=("ATT-SKLM-torchtitan-3235",),
        kernel=broken(output=last_split_empty),
        smallest=Case(kv_len=9),
        diagnoses=("lse-merge", "head-dim-tail"),
    ),
    Broken(
        name="lse_of_empty_rows_plus_infinity",
        laws=("log-sum-exp",),
        rows=("ATT-SKLM-flash-attentio-978",),
        kernel=broken_with_lse(lse=lambda right, at: right.masked_fill(right.isinf(), math.inf)),
        facts=LSE,
        smallest=Case(kv_lengths=(0,)),
        diagnoses=("lse-merge",),
    ),
    Broken(
        name="lse_in_base_2",
        laws=("log-sum-exp",),
        kernel=broken_with_lse(lse=lambda right, at: right * math.log2(math.e)),
        facts=LSE,
        smallest=Case(values="one_hot"),
        diagnoses=("lse-merge",),
    ),
    Broken(
        name="lse_without_the_maximum",
        laws=("log-sum-exp",),
        kernel=broken_with_lse(lse=lambda right, at: right - at.top.squeeze(-1)),
        facts=LSE,
        smallest=Case(values="one_hot"),
        diagnoses=("lse-merge",),
    ),
)
