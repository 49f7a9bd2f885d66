"""Which keys are seen by their place: causal corners and windows."""

from __future__ import annotations

import torch

from equivalence.case import AttentionCase as Case
from equivalence.masks import Mask
from tests.broken.attention_base import broken, where, without
from tests.broken.entry import Broken


def causal_in_mask_branch(right, at):
    return right if at.given["attn_mask"] is not None else {**right, "is_causal": False}


def option_early_return(right, at):
    alone = right["attn_mask"] is None and not right["is_causal"] and right["kv_lengths"] is None
    return {**right, "window": None, "window_size": None} if alone else right


CAUSAL_AND_WINDOWS = (
    Broken(
        name="upper_left",
        rows=("ATT-CA-executorch-4066",),
        kernel=broken(causal=lambda right, at: at.keys <= at.rows),
        smallest=Case(kv_len=2, causal="lower_right", values="steps"),
        diagnoses=("causal-alignment",),
    ),
    Broken(
        name="offset_without_kv_lengths",
        rows=("ATT-CA-onnx-8054",),
        kernel=broken(
            causal=lambda right, at: (
                at.keys
                <= at.rows + (at.kv_len if at.given["kv_lengths"] is None else at.q_len) - at.q_len
            )
        ),
        smallest=Case(kv_len=2, causal="lower_right", kv_lengths=(2,), values="steps"),
        diagnoses=("causal-alignment", "padding"),
    ),
    Broken(
        name="offset_less_the_padding",
        rows=("ATT-PV-mlxcel-76",),
        kernel=broken(causal=lambda right, at: at.keys <= at.diagonal - (at.kv_len - at.lengths)),
        smallest=Case(kv_len=2, causal="lower_right", kv_lengths=(1,)),
        diagnoses=("causal-alignment", "padding"),
        note="re-created on kv_lengths; the report is about a cache",
    ),
    Broken(
        name="causal_only_if_square",
        rows=("ATT-CA-Qwen-979",),
        kernel=broken(
            given=lambda right, at: {
                **right,
                "is_causal": right["is_causal"] and at.q_len == at.kv_len,
            }
        ),
        smallest=Case(q_len=2, kv_len=3, causal="lower_right", values="steps"),
        diagnoses=("causal-alignment",),
    ),
    Broken(
        name="causal_only_in_the_mask_branch",
        rows=("ATT-CA-xformers-103",),
        kernel=broken(given=causal_in_mask_branch),
        smallest=Case(q_len=2, kv_len=2, causal="lower_right", values="steps"),
        diagnoses=("causal-alignment", "ignored-option"),
    ),
    Broken(
        name="causal_only_in_the_fused_path",
        rows=("ATT-CA-keras-23038",),
        kernel=broken(
            given=where(lambda at: at.given["attn_mask"] is not None, without(is_causal=False))
        ),
        smallest=Case(q_len=2, kv_len=2, causal="lower_right", values="steps", mask=Mask()),
        diagnoses=("causal-alignment", "mask-semantics"),
    ),
    Broken(
        name="causal_without_the_diagonal",
        rows=("ATT-CA-flashinfer-348",),
        kernel=broken(causal=lambda right, at: at.keys < at.diagonal),
        smallest=Case(causal="lower_right"),
        diagnoses=("causal-alignment",),
        note="the fix that was proposed and rightly refused",
    ),
    Broken(
        name="causal_offset_not_negative",
        kernel=broken(
            causal=lambda right, at: at.keys <= at.rows + (at.lengths - at.q_len).clamp(min=0)
        ),
        smallest=Case(q_len=3, kv_len=2, causal="lower_right", values="steps"),
        diagnoses=("causal-alignment",),
    ),
    Broken(
        name="causal_by_tiles_of_16",
        kernel=broken(causal=lambda right, at: at.keys // 16 <= at.diagonal // 16),
        smallest=Case(q_len=2, kv_len=2, causal="lower_right", values="steps"),
        diagnoses=("causal-alignment",),
    ),
    Broken(
        name="causal_sees_nothing",
        rows=("ATT-CA-TransformerEng-3528",),
        kernel=broken(causal=lambda right, at: torch.zeros_like(right)),
        smallest=Case(causal="lower_right"),
        diagnoses=("causal-alignment",),
    ),
    Broken(
        name="window_one_too_wide",
        rows=("ATT-WOBO-transformers-39408", "ATT-WOBO-maxtext-4289", "ATT-WOBO-zml-763"),
        kernel=broken(
            sides=lambda right, at: (
                right if at.given["window"] is None else (right[0] + 1, right[1])
            )
        ),
        smallest=Case(kv_len=2, window=1, values="steps"),
        diagnoses=("window",),
    ),
    Broken(
        name="window_by_tiles_of_16",
        rows=("ATT-WOBO-sglang-31501",),
        kernel=broken(from_left=lambda right, at: at.keys // 16 >= (at.diagonal - at.left) // 16),
        smallest=Case(kv_len=2, window=1, values="steps"),
        diagnoses=("window",),
    ),
    Broken(
        name="window_alone_ignored",
        rows=("ATT-MS-jax-32300",),
        kernel=broken(given=option_early_return),
        smallest=Case(kv_len=2, window=1, values="steps"),
        diagnoses=("window",),
    ),
    Broken(
        name="window_right_ignored",
        kernel=broken(sides=lambda right, at: (right[0], -1)),
        smallest=Case(q_len=2, kv_len=2, window=1, values="steps"),
        diagnoses=("window",),
    ),
    Broken(
        name="window_on_both_sides",
        kernel=broken(
            sides=lambda right, at: right if at.given["window"] is None else (right[0], right[0])
        ),
        smallest=Case(q_len=2, kv_len=2, window=2, values="steps"),
        diagnoses=("window",),
    ),
    Broken(
        name="window_left_of_0_read_as_none",
        kernel=broken(
            sides=lambda right, at: right if at.given["window"] else (right[0] or -1, right[1])
        ),
        smallest=Case(kv_len=2, window=(0, 0), values="steps"),
        diagnoses=("window",),
    ),
    Broken(
        name="window_wrong_where_the_tile_ends",
        kernel=broken(from_left=lambda right, at: right | ((at.diagonal - at.left) % 32 == 0)),
        smallest=Case(kv_len=33, window=1, values="steps"),
        diagnoses=("window",),
    ),
    Broken(
        name="window_dropped_beside_softcap",
        kernel=broken(
            given=where(
                lambda at: bool(at.given["softcap"]), without(window=None, window_size=None)
            )
        ),
        smallest=Case(kv_len=2, window=1, softcap=1.0, values="steps"),
        diagnoses=("window", "softcap"),
    ),
)
