"""Strides, tails of tiles, thresholds between kernels, stale memory and NaN."""

from __future__ import annotations

import torch

from equivalence.case import AttentionCase as Case
from equivalence.masks import Mask
from tests.broken.attention_base import broken, where, without
from tests.broken.entry import Broken


def raw(tensor):
    """The tensor as a kernel reads it that takes it to be contiguous."""
    return _read(tensor, torch.empty(tensor.shape).stride())


def unit_stride(tensor):
    """The tensor as a kernel reads it that takes its last axis to be dense."""
    return _read(tensor, (*tensor.stride()[:-1], 1))


def _read(tensor, strides):
    """Through other strides; beyond the storage stand sevens."""
    held = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
    places = sum(
        torch.arange(length).view(-1, *[1] * (3 - axis)) * stride
        for axis, (length, stride) in enumerate(zip(tensor.shape, strides, strict=True))
    )
    beyond = tensor.new_full((1,), 7.0)
    return torch.cat((held, beyond))[(places + tensor.storage_offset()).clamp(max=held.numel())]


def read(by, *which):
    """An ``operands`` step: the operands at the places ``which`` read by ``by``."""
    return lambda qkv, at: tuple(by(x) if i in which else x for i, x in enumerate(qkv))


def expanded_tail(qkv, at):
    """In the last tile of 32, a head axis of stride 0 is walked as if it were dense."""
    query, key, value = qkv
    stale = at.kv_len % 32 == 1 and at.kv_len > 1 and at.kv_heads > 1 and key.stride(1) == 0
    mask = at.given["attn_mask"]
    if not stale or mask is None or mask.dtype != torch.bool:
        return qkv
    value = value.clone()
    value[:, 1:, -1] = 0.0
    return query, key, value


def last_tile_dropped(size):
    def drop(keep, at):
        whole = at.kv_len // size * size or at.kv_len
        return keep & (at.keys < whole)

    return drop


def first_channels(width):
    return lambda qkv, at: (
        torch.where(torch.arange(at.dim) < width, qkv[0], 0),
        *qkv[1:],
    )


def one_partial_too_many(right, at):
    """The second pass adds one partial result that nobody wrote."""
    if at.kv_len <= 32 or at.group == 1:
        return right
    return right + torch.rand(()) * right.abs().amax(-1, keepdim=True)


def scratch(right, at):
    """Rows beyond the first four stand in memory that was never cleared."""
    if at.q_len < 4 or at.group == 1:
        return right
    return right + torch.rand(right.shape, dtype=right.dtype)


def two_equal_shards(right, at):
    """Two shards of equal length; a remainder is padded with zeros, and not hidden."""
    if at.kv_len % 2 == 0:
        return right
    return right + torch.exp(-at.top)


MEMORY = (
    Broken(
        name="strides_ignored",
        laws=("strides-do-not-matter",),
        rows=("ATT-SC-pytorch-181133",),
        kernel=broken(operands=read(raw, 0, 1, 2)),
        smallest=Case(q_len=2, memory="sliced"),
        diagnoses=("strides",),
    ),
    Broken(
        name="strides_ignored_in_short_queries",
        laws=("strides-do-not-matter",),
        rows=("ATT-SC-pytorch-163597",),
        kernel=broken(operands=where(lambda at: at.q_len <= 8, read(raw, 0, 1, 2))),
        smallest=Case(q_len=2, memory="sliced"),
        diagnoses=("strides",),
    ),
    Broken(
        name="strides_of_the_value_ignored",
        laws=("strides-do-not-matter",),
        kernel=broken(operands=read(raw, 2)),
        smallest=Case(kv_len=2, memory="sliced"),
        diagnoses=("strides",),
    ),
    Broken(
        name="strides_of_the_key_ignored",
        laws=("strides-do-not-matter",),
        kernel=broken(operands=read(raw, 1)),
        smallest=Case(kv_len=2, memory="sliced"),
        diagnoses=("strides",),
    ),
    Broken(
        name="last_stride_taken_as_one",
        laws=("strides-do-not-matter",),
        rows=("ATT-SC-pytorch-187504",),
        kernel=broken(operands=read(unit_stride, 0, 1, 2)),
        smallest=Case(kv_len=2, head_dim=2, values="one_hot", memory="transposed"),
        diagnoses=("strides",),
    ),
    Broken(
        name="stride_0_in_the_last_tile",
        laws=("strides-do-not-matter",),
        rows=("ATT-SC-pytorch-191937",),
        kernel=broken(operands=expanded_tail),
        smallest=Case(num_kv_heads=2, kv_len=33, mask=Mask(), memory="expanded"),
        diagnoses=("strides", "head-dim-tail"),
    ),
    Broken(
        name="first_64_channels",
        rows=("ATT-HDOTT-triton-621",),
        kernel=broken(operands=first_channels(64)),
        smallest=Case(kv_len=2, head_dim=65, values="one_hot"),
        diagnoses=("head-dim-tail",),
    ),
    Broken(
        name="first_32_channels",
        kernel=broken(operands=first_channels(32)),
        smallest=Case(kv_len=2, head_dim=33, values="one_hot"),
        diagnoses=("head-dim-tail",),
    ),
    Broken(
        name="channels_beyond_128",
        kernel=broken(operands=first_channels(128)),
        smallest=Case(kv_len=2, head_dim=129, values="one_hot"),
        diagnoses=("head-dim-tail",),
    ),
    *(
        Broken(
            name=f"key_tail_of_{size}_dropped",
            kernel=broken(keep=last_tile_dropped(size)),
            smallest=Case(kv_len=size + 1, values="steps"),
            smallest_in={"bfloat16": Case(kv_len=size + 2, values="steps")} if size > 64 else {},
            diagnoses=("head-dim-tail",),
        )
        for size in (16, 32, 64, 128)
    ),
    Broken(
        name="key_tail_unmasked_in_bool_masks",
        kernel=broken(
            by_mask=lambda keep, at: keep | ((at.keys == at.kv_len - 1) & (at.kv_len % 32 == 1))
        ),
        smallest=Case(kv_len=33, mask=Mask(pattern="padding"), values="steps"),
        diagnoses=("mask-semantics", "head-dim-tail"),
    ),
    Broken(
        name="softcap_dropped_in_long_decode",
        laws=("agrees-with-float64", "options-are-not-ignored"),
        kernel=broken(
            given=where(lambda at: at.q_len == 1 and at.kv_len > 64, without(softcap=None))
        ),
        smallest=Case(kv_len=65, softcap=1.0, values="one_hot"),
        smallest_in={"bfloat16": Case(kv_len=65, softcap=1.0, values="one_hot", seed=2)},
        diagnoses=("softcap",),
    ),
    Broken(
        name="value_heads_tiled_above_64_keys",
        kernel=broken(
            value_heads=where(
                lambda at: at.kv_len > 64, lambda right, at: torch.arange(at.heads) % at.kv_heads
            )
        ),
        smallest=Case(num_kv_heads=2, group_size=2, kv_len=65),
        diagnoses=("head-mapping",),
    ),
    Broken(
        name="queries_beyond_16_see_all",
        kernel=broken(causal=lambda keep, at: keep | (at.rows >= 16)),
        smallest=Case(q_len=18, kv_len=2, causal="lower_right", values="steps"),
        diagnoses=("causal-alignment",),
    ),
    Broken(
        name="one_partial_too_many",
        rows=("ATT-HDOTT-pytorch-174861",),
        kernel=broken(output=one_partial_too_many),
        smallest=Case(group_size=2, kv_len=33),
        diagnoses=("determinism",),
    ),
    Broken(
        name="scratch_not_cleared",
        rows=("ATT-D-onnxruntime-26674",),
        kernel=broken(output=scratch),
        smallest=Case(group_size=2, q_len=4),
        diagnoses=("determinism",),
    ),
    Broken(
        name="shards_of_equal_length",
        rows=("ATT-PV-DeepSpeed-7384",),
        kernel=broken(total=two_equal_shards),
        smallest=Case(),
        diagnoses=("padding", "head-dim-tail", "wrong-operand"),
    ),
    Broken(
        name="zero_times_nan",
        laws=("hidden-nan-is-ignored",),
        rows=("ATT-NIP-flash-attentio-2374",),
        kernel=broken(unread=lambda right, at: at.value[:, at.value_heads]),
        smallest=Case(kv_len=2, kv_lengths=(1,)),
        diagnoses=("nan-propagation",),
    ),
    Broken(
        name="nan_swallowed",
        laws=("visible-nan-is-kept",),
        rows=("ATT-NIP-pytorch-141128",),
        kernel=broken(probs=lambda right, at: right.nan_to_num(0.0)),
        smallest=Case(values="steps", seed=1),
        diagnoses=("nan-propagation",),
    ),
)
