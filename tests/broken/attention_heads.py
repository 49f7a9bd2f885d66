"""Heads and operands: which head reads which, heads mixed, tensors taken for others."""

from __future__ import annotations

import torch

from equivalence.case import AttentionCase as Case
from equivalence.masks import Mask
from tests.broken.attention_base import attend, broken, where
from tests.broken.entry import Broken

GROUPED = Case(num_kv_heads=2, group_size=2)
PAIR = Case(kv_len=2, values="one_hot")
TWO_HEADS = Case(num_kv_heads=2, kv_len=2, values="normal")


def tiled(right, at):
    return torch.arange(at.heads) % at.kv_heads


def by_groups_of(sizes):
    """Right group sizes are compiled; the others fall back to the tiled map."""
    return where(lambda at: at.group in sizes, tiled)


def unfolded_wrongly(output, at):
    """(group, kv head) for (kv head, group)."""
    shape = (at.batch, at.kv_heads, at.group)
    return output.unflatten(1, shape[1:]).transpose(1, 2).flatten(1, 2)


def fused_rows(right, at):
    """q, k and v packed as [Hkv, G + 2, D] rows; Q is read as if its group were G + 2."""
    query, key, value = right
    if at.q_len != at.kv_len or at.dim != at.v_dim:
        return right
    parts = (query.unflatten(1, (at.kv_heads, at.group)), key[:, :, None], value[:, :, None])
    packed = torch.cat(parts, 2).flatten(1, 2)
    return packed[:, : at.heads], key, value


def normed(tensor):
    return torch.nn.functional.normalize(tensor.float(), dim=-1).to(tensor.dtype)


def flat_columns(right, at):
    """The value tile is as wide as the key's: the surplus columns are those of the next head."""
    query, key, value = right
    if at.v_dim >= at.dim:
        return right
    rows = value.transpose(1, 2).flatten(2)
    steps = torch.arange(at.kv_heads) * at.dim
    columns = (steps.view(-1, 1) + torch.arange(at.v_dim)) % rows.shape[-1]
    return query, key, rows[:, :, columns].transpose(1, 2)


def value_blocks_by_their_width(right, at):
    """The score loop steps by Dk keys a block, the value loop by Dv."""
    query, key, value = right
    place = torch.arange(at.kv_len)
    rows = (place // at.dim * at.v_dim + place % at.dim).clamp(max=max(0, at.kv_len - 1))
    return query, key, value[:, :, rows]


def mean_of_values(right, at):
    return right.new_ones(right.shape) / max(1, at.kv_len)


def drops_the_flag(query, key, value, *, enable_gqa=False, scale=None):
    """Relies on broadcasting, which works for one key/value head only."""
    options = dict.fromkeys(
        ("attn_mask", "window", "window_size", "softcap", "sinks", "alibi_slopes", "kv_lengths")
    )
    if key.shape[1] not in (1, query.shape[1]):
        raise RuntimeError("the sizes of the tensors must match at dimension 1")
    key, value = (x.expand(-1, query.shape[1], -1, -1) for x in (key, value))
    return attend(query, key, value, {**options, "is_causal": False, "scale": scale}, {})[0]


def only_some_groups(right, at):
    if at.group not in (1, 2, 3, 4, 8) and at.q_len == 1:
        raise RuntimeError(f"Unsupported group_size: {at.group}")
    return right


HEADS = (
    Broken(
        name="heads_tiled",
        rows=("ATT-HM-onnx-7274", "ATT-HM-jax-js-180", "ATT-HM-axlearn-842"),
        kernel=broken(key_heads=tiled, value_heads=tiled),
        smallest=GROUPED,
        diagnoses=("head-mapping",),
    ),
    Broken(
        name="value_heads_tiled",
        kernel=broken(value_heads=tiled),
        smallest=GROUPED,
        diagnoses=("head-mapping",),
    ),
    Broken(
        name="key_heads_tiled",
        kernel=broken(key_heads=tiled),
        smallest=Case(num_kv_heads=2, group_size=2, kv_len=2, values="one_hot"),
        diagnoses=("head-mapping",),
    ),
    Broken(
        name="tiled_in_groups_of_3",
        kernel=broken(key_heads=by_groups_of((3,)), value_heads=by_groups_of((3,))),
        smallest=Case(num_kv_heads=2, group_size=3),
        diagnoses=("head-mapping",),
    ),
    Broken(
        name="tiled_in_groups_of_5",
        kernel=broken(key_heads=by_groups_of((5,)), value_heads=by_groups_of((5,))),
        smallest=Case(num_kv_heads=2, group_size=5),
        diagnoses=("head-mapping",),
    ),
    Broken(
        name="tiled_in_groups_of_6_or_7",
        kernel=broken(key_heads=by_groups_of((6, 7)), value_heads=by_groups_of((6, 7))),
        smallest=Case(num_kv_heads=2, group_size=6),
        diagnoses=("head-mapping",),
    ),
    Broken(
        name="group_gap",
        rows=("ATT-PM-flashinfer-996",),
        kernel=broken(operands=only_some_groups),
        smallest=Case(group_size=5),
        diagnoses=("crash", "refusal"),
    ),
    Broken(
        name="gqa_flag_dropped",
        rows=("ATT-CDO-coremltools-2855",),
        kernel=drops_the_flag,
        smallest=GROUPED,
        diagnoses=("refusal",),
    ),
    Broken(
        name="output_heads_unfolded_wrongly",
        rows=("ATT-HM-nntile-347",),
        kernel=broken(output=unfolded_wrongly),
        smallest=GROUPED,
        diagnoses=("head-mapping", "head-mixing"),
    ),
    Broken(
        name="fused_qkv_split",
        rows=("ATT-HM-Megatron-DeepS-307",),
        kernel=broken(operands=fused_rows),
        smallest=Case(num_kv_heads=2, q_len=2, kv_len=2, values="one_hot"),
        diagnoses=("wrong-operand", "head-mapping"),
    ),
    Broken(
        name="softmax_over_heads",
        kernel=broken(probs=lambda right, at: at.masked.softmax(1).nan_to_num(0.0)),
        smallest=Case(kv_len=2),
        diagnoses=("head-mixing",),
    ),
    Broken(
        name="heads_mixed_before_the_values",
        kernel=broken(probs=lambda right, at: right.flip(1)),
        smallest=Case(group_size=2, kv_len=2, values="one_hot"),
        smallest_in={"bfloat16": Case(group_size=2, kv_len=3, values="one_hot")},
        diagnoses=("head-mixing", "head-mapping"),
    ),
    Broken(
        name="key_for_value",
        kernel=broken(operands=lambda qkv, at: qkv if at.dim != at.v_dim else (*qkv[:2], qkv[1])),
        smallest=Case(),
        diagnoses=("wrong-operand",),
    ),
    Broken(
        name="mean_of_the_values",
        rows=("ATT-TA-mlir-air-1427",),
        kernel=broken(probs=mean_of_values),
        smallest=PAIR,
        diagnoses=("wrong-operand",),
    ),
    Broken(
        name="query_and_key_normed",
        kernel=broken(operands=lambda qkv, at: (normed(qkv[0]), normed(qkv[1]), qkv[2])),
        smallest=PAIR,
        diagnoses=("wrong-operand", "scale"),
    ),
    Broken(
        name="query_normed",
        kernel=broken(operands=lambda qkv, at: (normed(qkv[0]), *qkv[1:])),
        smallest=PAIR,
        diagnoses=("wrong-operand", "scale"),
    ),
    Broken(
        name="values_step_by_their_own_width",
        rows=("ATT-MA-ik_llama.cpp-2031",),
        kernel=broken(operands=value_blocks_by_their_width),
        smallest=Case(kv_len=3, value_head_dim=2, values="steps"),
        diagnoses=("wrong-operand", "head-dim-tail", "mla-absorption"),
    ),
    Broken(
        name="value_tile_as_wide_as_the_key",
        rows=("ATT-MA-sgl-kernel-xpu-210",),
        kernel=broken(operands=flat_columns),
        smallest=Case(num_kv_heads=2, head_dim=2, value_head_dim=1),
        diagnoses=("wrong-operand", "head-dim-tail", "head-mapping", "head-mixing"),
    ),
    Broken(
        name="two_faults",
        kernel=broken(
            value_heads=tiled,
            mask=lambda right, at: ~right if right.dtype == torch.bool else right,
        ),
        smallest=Case(mask=Mask()),
        diagnoses=("head-mapping", "mask-semantics"),
        note="both must be reported",
    ),
    Broken(
        name="batch_rows_from_ten_on",
        rows=("ATT-PV-coremltools-2650",),
        kernel=broken(
            operands=lambda qkv, at: (
                qkv[0],
                *(x[torch.arange(at.batch) % 10] for x in qkv[1:]),
            )
        ),
        smallest=Case(batch_size=11, values="steps"),
        diagnoses=("batch-dependence",),
    ),
    Broken(
        name="value_of_the_first_row",
        kernel=broken(operands=lambda qkv, at: (*qkv[:2], qkv[2][:1].expand_as(qkv[2]))),
        smallest=Case(batch_size=2, values="steps"),
        diagnoses=("batch-dependence",),
    ),
    Broken(
        name="mask_per_head_folded",
        rows=("ATT-B-torch-xpu-ops-5090",),
        kernel=broken(
            mask=lambda mask, at: (
                mask
                if mask.shape[1] == 1
                else mask.unflatten(1, (at.group, at.kv_heads)).transpose(1, 2).flatten(1, 2)
            )
        ),
        smallest=Case(num_kv_heads=2, group_size=2, mask=Mask(pattern="window", axes="h", size=2)),
        diagnoses=("broadcasting",),
    ),
)
