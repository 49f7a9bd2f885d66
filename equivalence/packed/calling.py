"""Call kernels for packed and paged sequences the way the contract says.

varlen: ``fn(query, key, value, *, cu_seqlens_q, cu_seqlens_k, ...)``, laid out as flash-attn's
``flash_attn_varlen_func`` documents: query ``[total_q, H, D]``, key ``[total_k, Hkv, D]``, value
``[total_k, Hkv, Dv]``, cu_seqlens int32 ``[N + 1]`` from 0 to the total; max_seqlen_q and
max_seqlen_k, where taken, are at least the longest sequence. Output ``[total_q, H, Dv]``.

paged: ``fn(query, key_pages, value_pages, *, page_table, kv_lengths, ...)``, as flash-attn's
``flash_attn_with_kvcache`` with a block table, except for the query: ``[B, H, Sq, D]`` (or
``[B, Sq, H, D]``, as there, when declared layout="BSHD"); pages ``[P, page_size, Hkv, D]``,
page_table int32 ``[B, n]``, kv_lengths int32 ``[B]``, which count the queries' own keys too.
Output in the layout of the query. The other options are those of attention.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from equivalence.calling import LocalTarget
from equivalence.dtypes import Array, stored
from equivalence.memory import lay_out
from equivalence.outcome import Outcome
from equivalence.packed.inputs import PagedInputs, VarlenInputs


def call(target: LocalTarget, inputs: VarlenInputs | PagedInputs) -> Outcome:
    """Call the kernel once on fresh tensors; its exceptions become outcomes."""
    if isinstance(inputs, VarlenInputs):
        operands, keywords = _packed_operands(inputs), _packed_keywords(inputs, target.options)
    else:
        operands = _paged_operands(inputs, target.declaration.layout)
        keywords = _options(inputs, target.options)
        keywords["page_table"] = inputs.page_table.astype(np.int32)
        keywords["kv_lengths"] = inputs.kv_lengths.astype(np.int32)
    return target.call_with(operands, keywords, inputs.dtype)


def _packed_operands(inputs: VarlenInputs) -> dict[str, Array]:
    return {
        name: lay_out(stored(getattr(inputs, name), inputs.dtype)[None], inputs.memory)[0]
        for name in ("query", "key", "value")
    }


def _packed_keywords(inputs: VarlenInputs, taken: Mapping[str, str]) -> dict[str, Any]:
    given = _options(inputs, taken)
    given["cu_seqlens_q"] = inputs.cu_seqlens_q
    given["cu_seqlens_k"] = inputs.cu_seqlens_k
    for name, lens in (("max_seqlen_q", inputs.q_lens), ("max_seqlen_k", inputs.kv_lens)):
        if name in taken:
            given[name] = max(lens) + inputs.longer_max
    return given


def _paged_operands(inputs: PagedInputs, layout: str | None) -> dict[str, Array]:
    query = stored(inputs.query, inputs.dtype)
    return {
        "query": lay_out(query.swapaxes(1, 2) if layout == "BSHD" else query, inputs.memory),
        "key_pages": lay_out(stored(inputs.key, inputs.dtype), inputs.memory),
        "value_pages": lay_out(stored(inputs.value, inputs.dtype), inputs.memory),
    }


def _options(inputs: VarlenInputs | PagedInputs, taken: Mapping[str, str]) -> dict[str, Any]:
    """The options that attention has too: causal where it is taken, the rest where it is used."""
    given: dict[str, Any] = {}
    if "causal" in taken:
        given["causal"] = inputs.causal is not None
    if inputs.scale is not None:
        given["scale"] = inputs.scale
    if inputs.window is not None:
        given["window" if isinstance(inputs.window, int) else "window_size"] = inputs.window
    if inputs.softcap is not None:
        given["softcap"] = inputs.softcap
    if "enable_gqa" in taken:
        given["enable_gqa"] = True
    return given
