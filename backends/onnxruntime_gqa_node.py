"""One call of com.microsoft.GroupQueryAttention, with the layouts that its inputs have."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from equivalence.backends.onnx_node import run_node
from equivalence.dtypes import Array

INPUTS: Final = (
    "query", "key", "value", "past_key", "past_value", "seqlens_k", "total_sequence_length",
    "cos_cache", "sin_cache", "position_ids", "attention_bias", "head_sink", "k_scale", "v_scale",
    "q_norm_weight", "k_norm_weight", "query_seqlens",
)  # fmt: skip
OUTPUTS: Final = ("output", "present_key", "present_value")


def packed(x: Array) -> Array:
    """``[B, H, S, D]`` -> ``[B, S, H * D]``, as the operator takes queries and new keys."""
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], x.shape[1] * x.shape[3])


def group_query(
    heads: tuple[int, int], totals: Array, *, attributes: dict[str, Any] | None = None, **given: Any
) -> tuple[Array, Array, Array]:
    """One call: the output ``[B, H, Sq, D]``, and the caches as they are after it.

    heads: of queries, and of keys and values. totals ``[B]``: the tokens of each row, those of
    this call among them. given: inputs by name, query, key and value as ``packed`` makes them.
    """
    given["seqlens_k"] = (totals - 1).astype(np.int32)
    given["total_sequence_length"] = np.array(totals.max(), np.int32)
    output, present_key, present_value = run_node(
        "GroupQueryAttention", {name: given.get(name) for name in INPUTS}, OUTPUTS,
        opset=21, domain="com.microsoft", num_heads=heads[0], kv_num_heads=heads[1],
        **(attributes or {}),
    )  # fmt: skip
    batch_size, q_len, _ = output.shape
    return (
        output.reshape(batch_size, q_len, heads[0], -1).swapaxes(1, 2), present_key, present_value,
    )  # fmt: skip
