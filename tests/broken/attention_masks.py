"""Which keys are seen: masks, used lengths, and rows without keys."""

from __future__ import annotations

import math

import torch

from equivalence.case import AttentionCase as Case
from equivalence.masks import Mask
from tests.broken.attention_base import broken, where, without
from tests.broken.entry import Broken


def bool_mask(mask):
    return mask.dtype == torch.bool


def batch_as_kv_head(mask, at):
    """5-D scores [B, Hkv, G, ...] plus a 4-D mask: where B == Hkv it broadcasts silently."""
    if mask.shape[0] == at.kv_heads and mask.shape[0] > 1 and mask.shape[1] == 1:
        return mask.transpose(0, 1).repeat_interleave(at.group, 1)
    return mask


def wrapped_index(mask, at):
    """A flat index into the mask that has 7 bits."""
    flat = mask.flatten(2)
    return flat[..., torch.arange(flat.shape[-1]) % 2**7].view(mask.shape)


def minus_1e4_for_hidden(right, at):
    """A bool mask becomes a bias of -1e4, which hides nothing from a row that sees no other key."""
    if at.mask is None or not bool_mask(at.mask):
        return right
    return torch.where(at.mask, right, right - 1e4)


def stuck_maximum(right, at):
    """A running maximum that starts at the lowest float32 and never leaves it."""
    lowest = torch.finfo(torch.float32).min
    dead = (at.masked <= lowest).all(-1, keepdim=True) & at.keep.any(-1, keepdim=True)
    return right.masked_fill(dead, math.nan)


MASKS = (
    Broken(
        name="bool_mask_added",
        rows=("ATT-MS-openvino-31630",),
        kernel=broken(mask=lambda mask, at: mask.to(at.wide) if bool_mask(mask) else mask),
        smallest=Case(kv_len=2, values="steps", mask=Mask(pattern="padding")),
        diagnoses=("mask-semantics",),
    ),
    Broken(
        name="mask_dropped",
        rows=("ATT-CDO-torch-spyre-4526",),
        kernel=broken(given=without(attn_mask=None)),
        smallest=Case(kv_len=2, values="steps", mask=Mask(pattern="padding")),
        diagnoses=("mask-semantics",),
    ),
    Broken(
        name="bool_mask_inverted",
        kernel=broken(mask=lambda mask, at: ~mask if bool_mask(mask) else mask),
        smallest=Case(mask=Mask()),
        diagnoses=("mask-semantics",),
    ),
    Broken(
        name="float_mask_inverted",
        kernel=broken(mask=lambda mask, at: mask if bool_mask(mask) else -mask),
        smallest=Case(kv_len=2, mask=Mask(form="float", bias=1.0), values="steps"),
        diagnoses=("mask-semantics",),
    ),
    Broken(
        name="float_mask_as_bool",
        kernel=broken(mask=lambda mask, at: mask if bool_mask(mask) else mask == 0),
        smallest=Case(mask=Mask(form="float", bias=1.0)),
        diagnoses=("mask-semantics",),
    ),
    Broken(
        name="mask_scaled",
        kernel=broken(mask=lambda mask, at: mask if bool_mask(mask) else mask * at.factor),
        smallest=Case(kv_len=2, head_dim=2, mask=Mask(form="float", bias=1.0), values="steps"),
        diagnoses=("mask-semantics",),
    ),
    Broken(
        name="hidden_keys_score_minus_1e4",
        laws=("agrees-with-float64", "masked-rows"),
        kernel=broken(
            by_mask=lambda keep, at: torch.ones_like(keep) if bool_mask(at.mask) else keep,
            masked=minus_1e4_for_hidden,
        ),
        smallest=Case(mask=Mask(empty_rows=1)),
        diagnoses=("mask-semantics", "fully-masked-row"),
        facts={"hidden_nan": "leaks"},
        note="seen only where a row sees no key, or next to scores of thousands",
    ),
    Broken(
        name="mask_of_batch_row_as_head",
        rows=("ATT-B-mlx-lm-1467",),
        kernel=broken(mask=batch_as_kv_head),
        smallest=Case(
            batch_size=2,
            num_kv_heads=2,
            kv_len=2,
            mask=Mask(pattern="causal_upper_left", axes="b"),
            values="steps",
        ),
        diagnoses=("broadcasting",),
    ),
    Broken(
        name="mask_of_the_first_kv_heads",
        rows=("ATT-B-torch-mlir-4060",),
        kernel=broken(
            mask=lambda mask, at: (
                mask
                if mask.shape[1] == 1
                else mask[:, : at.kv_heads].repeat_interleave(at.group, 1)
            )
        ),
        smallest=Case(
            group_size=2, kv_len=2, mask=Mask(pattern="causal_upper_left", axes="h"), values="steps"
        ),
        diagnoses=("broadcasting",),
    ),
    Broken(
        name="mask_of_the_first_row",
        kernel=broken(mask=lambda mask, at: mask[:1]),
        smallest=Case(
            batch_size=2, kv_len=2, mask=Mask(pattern="causal_upper_left", axes="b"), values="steps"
        ),
        diagnoses=("broadcasting",),
    ),
    Broken(
        name="mask_of_the_first_query",
        kernel=broken(mask=lambda mask, at: mask[:, :, :1]),
        smallest=Case(q_len=2, mask=Mask(empty_rows=1)),
        diagnoses=("broadcasting", "mask-semantics"),
    ),
    Broken(
        name="mask_index_of_7_bits",
        rows=("ATT-HDOTT-pytorch-162588",),
        kernel=broken(mask=wrapped_index),
        smallest=Case(q_len=11, kv_len=12, mask=Mask(pattern="padding"), values="steps"),
        diagnoses=("head-dim-tail", "mask-semantics"),
    ),
    Broken(
        name="mask_dropped_in_short_queries",
        kernel=broken(given=where(lambda at: at.q_len <= 8, without(attn_mask=None))),
        smallest=Case(kv_len=2, values="steps", mask=Mask(pattern="padding")),
        diagnoses=("mask-semantics",),
    ),
    Broken(
        name="mask_dropped_in_long_queries",
        kernel=broken(given=where(lambda at: at.q_len > 8, without(attn_mask=None))),
        smallest=Case(q_len=9, kv_len=2, values="steps", mask=Mask(pattern="padding")),
        diagnoses=("mask-semantics",),
    ),
    Broken(
        name="lengths_ignored",
        kernel=broken(given=without(kv_lengths=None)),
        smallest=Case(kv_len=2, kv_lengths=(1,), values="steps"),
        diagnoses=("padding",),
    ),
    Broken(
        name="length_of_the_first_row",
        kernel=broken(lengths=lambda right, at: right[:1].expand_as(right)),
        smallest=Case(batch_size=2, kv_len=1, kv_lengths=(0, 1), values="ramp"),
        diagnoses=("padding",),
    ),
    Broken(
        name="lengths_one_too_long",
        kernel=broken(lengths=lambda right, at: (right + 1).clamp(max=at.kv_len)),
        smallest=Case(kv_len=2, kv_lengths=(1,), values="steps"),
        diagnoses=("padding",),
    ),
    Broken(
        name="lengths_one_too_short",
        kernel=broken(lengths=lambda right, at: right - 1),
        smallest=Case(kv_lengths=(1,)),
        diagnoses=("padding",),
    ),
    Broken(
        name="empty_rows_by_path",
        laws=("masked-rows",),
        rows=("ATT-FMR-mlx-2608", "ATT-FMR-curated-transf-360"),
        kernel=broken(
            probs=lambda right, at: right.masked_fill(
                ~at.keep.any(-1, keepdim=True), math.nan if at.q_len == 1 else 0.0
            )
        ),
        smallest=Case(mask=Mask(empty_rows=1)),
        diagnoses=("fully-masked-row",),
    ),
    Broken(
        name="lowest_mask_gives_nan",
        rows=("ATT-FMR-pytorch-109517",),
        kernel=broken(probs=stuck_maximum),
        smallest=Case(mask=Mask(form="float", hidden="finfo.min", empty_rows=1)),
        diagnoses=("fully-masked-row",),
        dtypes=("float32",),
    ),
)
