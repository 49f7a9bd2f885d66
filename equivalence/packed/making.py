"""From packed and paged cases to their tensors."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from equivalence.case import AttentionCase
from equivalence.dtypes import Array, rounded
from equivalence.inputs import AttentionInputs, attention_inputs
from equivalence.packed.case import PagedCase, VarlenCase
from equivalence.packed.inputs import PagedInputs, VarlenInputs


@lru_cache(maxsize=64)
def varlen_inputs(case: VarlenCase) -> VarlenInputs:
    """The tensors of ``case``; rows behind the last sequence hold other numbers."""
    numbers = _numbers(case, 1, sum(case.q_lens), sum(case.kv_lens))
    rng = np.random.default_rng([case.seed, 61])

    def packed(array: Array) -> Array:
        own = array[0].swapaxes(0, 1)
        noise = 3.0 * rng.normal(size=(case.spare_tokens, *own.shape[1:]))
        return np.concatenate([own, rounded(noise, case.dtype)])

    return VarlenInputs(
        query=numbers.query[0].swapaxes(0, 1),
        key=packed(numbers.key),
        value=packed(numbers.value),
        q_lens=case.q_lens,
        kv_lens=case.kv_lens,
        kv_head_of=numbers.kv_head_of,
        dtype=case.dtype,
        causal=case.causal,
        window=case.window,
        scale=case.scale,
        softcap=case.softcap,
        longer_max=case.longer_max,
        memory=case.memory,
    )


@lru_cache(maxsize=64)
def paged_inputs(case: PagedCase) -> PagedInputs:
    """The tensors of ``case``; slots that belong to nobody hold other numbers."""
    numbers = _numbers(case, len(case.kv_lengths), case.q_len, max(case.kv_lengths))
    return in_pages(case, numbers, page_size=case.page_size, order=case.order)


def in_pages(
    case: PagedCase, numbers: AttentionInputs, *, page_size: int, order: str
) -> PagedInputs:
    """The rows of ``numbers``, as long as ``case`` says, cut into pages."""
    counts = [-(-length // page_size) for length in case.kv_lengths]
    total = max(1, sum(counts) + case.spare_pages)
    pages = np.arange(total)
    if order == "reversed":
        pages = pages[::-1]
    elif order == "shuffled":
        pages = np.random.default_rng([case.seed, 53]).permutation(total)
    table = np.zeros((len(counts), max(1, *counts) + case.longer_table), np.int32)
    rng = np.random.default_rng([case.seed, 59])
    pools = []
    for array in (numbers.key, numbers.value):
        heads, width = array.shape[1], array.shape[3]
        noise = 3.0 * rng.normal(size=(total, page_size, heads, width))
        pools.append(rounded(noise, case.dtype))
    start = 0
    for i, count in enumerate(counts):
        table[i, :count] = pages[start : start + count]
        start += count
        tokens = np.arange(case.kv_lengths[i])
        page, slot = table[i, tokens // page_size], tokens % page_size
        for pool, array in zip(pools, (numbers.key, numbers.value), strict=True):
            pool[page, slot] = array[i, :, tokens]
    return PagedInputs(
        query=numbers.query,
        key=pools[0],
        value=pools[1],
        page_table=table,
        kv_lengths=np.asarray(case.kv_lengths, np.int32),
        kv_head_of=numbers.kv_head_of,
        dtype=case.dtype,
        causal=case.causal,
        window=case.window,
        scale=case.scale,
        softcap=case.softcap,
        memory=case.memory,
    )


@lru_cache(maxsize=64)
def _numbers(
    case: VarlenCase | PagedCase, batch_size: int, q_len: int, kv_len: int
) -> AttentionInputs:
    """Query, key and value of the families of ``AttentionCase.values``."""
    return attention_inputs(
        AttentionCase(
            batch_size=batch_size,
            num_kv_heads=case.num_kv_heads,
            group_size=case.group_size,
            q_len=q_len,
            kv_len=kv_len,
            head_dim=case.head_dim,
            value_head_dim=case.value_head_dim,
            dtype=case.dtype,
            values=case.values,
            magnitude=case.magnitude,
            seed=case.seed,
        )
    )


def repaged(case: PagedCase, *, page_size: int, order: str) -> PagedInputs:
    """The numbers of ``case`` behind other pages."""
    numbers = _numbers(case, len(case.kv_lengths), case.q_len, max(case.kv_lengths))
    return in_pages(case, numbers, page_size=page_size, order=order)
