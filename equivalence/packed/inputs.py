"""The tensors of packed and paged calls, and the attention calls that they amount to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar, Self

import numpy as np

from equivalence.dtypes import Array
from equivalence.inputs import AttentionInputs
from equivalence.piecewise import Piece


@dataclass(frozen=True, kw_only=True, eq=False)  # hashed by identity
class VarlenInputs:
    """What a kernel for packed tokens is given, as exact float64 images of the stored numbers.

    query ``[total_q, H, D]``, key ``[total_k, Hkv, D]``, value ``[total_k, Hkv, Dv]``. q_lens and
    kv_lens are the lengths behind cu_seqlens_q and cu_seqlens_k.
    """

    query: Array
    key: Array
    value: Array
    q_lens: tuple[int, ...]
    kv_lens: tuple[int, ...]
    kv_head_of: Array
    dtype: str
    causal: str | None = None
    window: int | tuple[int, int] | None = None
    scale: float | None = None
    softcap: float | None = None
    longer_max: int = 0
    memory: str = "contiguous"

    head_axis: ClassVar[int] = 1  # of key and value

    def own_places(self, piece: Piece, row: int) -> Array:
        """The places of the tokens of a piece's sequence, in order (see ``Weights``)."""
        ends = self.cu_seqlens_k
        (sequence,) = piece.sequences
        return np.arange(ends[sequence], ends[sequence + 1])

    def owner(self, place: int) -> str:
        """Whose token lies at a place, in words."""
        sequence = int(np.searchsorted(self.cu_seqlens_k, place, side="right")) - 1
        if sequence == len(self.kv_lens):
            return f"row {place} behind the last sequence"
        return f"token {place - int(self.cu_seqlens_k[sequence])} of sequence {sequence}"

    @property
    def output_shape(self) -> tuple[int, ...]:
        """``[total_q, H, Dv]``."""
        return (*self.query.shape[:2], self.value.shape[-1])

    @property
    def cu_seqlens_q(self) -> Array:
        """Where each sequence's queries begin, and the end of the last: int32 ``[N + 1]``."""
        return np.concatenate([[0], np.cumsum(self.q_lens)]).astype(np.int32)

    @property
    def cu_seqlens_k(self) -> Array:
        """Where each sequence's keys begin, and the end of the last: int32 ``[N + 1]``."""
        return np.concatenate([[0], np.cumsum(self.kv_lens)]).astype(np.int32)

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """One piece for each sequence that has queries."""
        found = []
        ends_q, ends_k = self.cu_seqlens_q, self.cu_seqlens_k
        for i, count in enumerate(self.q_lens):
            if not count:
                continue
            queries = slice(int(ends_q[i]), int(ends_q[i + 1]))
            keys = slice(int(ends_k[i]), int(ends_k[i + 1]))
            call = _call(self, self.query[queries], self.key[keys], self.value[keys])
            take = partial(_packed_rows, rows=queries)
            label = f"sequence {i} ({count} queries, {self.kv_lens[i]} keys)"
            found.append(Piece(label=label, inputs=call, take=take, sequences=(i,)))
        return tuple(found)

    def without_scores(self) -> Self:
        """The same inputs with every score zero."""
        return self.but(key=np.zeros_like(self.key))

    def but(self, **changes: Any) -> Self:
        """The same inputs with some fields changed."""
        return replace(self, **changes)

    def only(self, chosen: Array | list[int]) -> Self:
        """The sequences ``chosen`` alone, packed in that order."""
        queries = _gathered(self.cu_seqlens_q, chosen)
        keys = _gathered(self.cu_seqlens_k, chosen)
        return self.but(
            query=self.query[queries],
            key=self.key[keys],
            value=self.value[keys],
            q_lens=tuple(self.q_lens[i] for i in chosen),
            kv_lens=tuple(self.kv_lens[i] for i in chosen),
        )


def _gathered(ends: Array, chosen: Array | list[int]) -> Array:
    parts = [np.arange(ends[i], ends[i + 1]) for i in chosen]
    found: Array = np.concatenate([np.zeros(0, np.int64), *parts]).astype(np.int64)
    return found


def _packed_rows(output: Array, rows: slice) -> Array:
    return np.asarray(output[rows].swapaxes(0, 1)[None])


@dataclass(frozen=True, kw_only=True, eq=False)
class PagedInputs:
    """What a kernel for paged keys and values is given, as exact float64 images.

    query ``[B, H, Sq, D]``, key ``[P, page_size, Hkv, D]``, value ``[P, page_size, Hkv, Dv]``,
    page_table ``[B, n]`` (entries past the end of a sequence hold a valid page that is not
    its own, or 0), kv_lengths ``[B]``.
    """

    query: Array
    key: Array
    value: Array
    page_table: Array
    kv_lengths: Array
    kv_head_of: Array
    dtype: str
    causal: str | None = None
    window: int | tuple[int, int] | None = None
    scale: float | None = None
    softcap: float | None = None
    memory: str = "contiguous"

    head_axis: ClassVar[int] = 2  # of key and value

    def own_places(self, piece: Piece, row: int) -> Array:
        """The places of the tokens of a piece's sequence, in order (see ``Weights``)."""
        (sequence,) = piece.sequences
        page, slot = self.slots_of(sequence)
        return np.asarray(page * self.page_size + slot)

    def owner(self, place: int) -> str:
        """Whose token lies at a place, in words."""
        for sequence in range(len(self.kv_lengths)):
            page, slot = self.slots_of(sequence)
            found = np.flatnonzero(page * self.page_size + slot == place)
            if found.size:
                return f"token {int(found[0])} of sequence {sequence}"
        return f"slot {place % self.page_size} of page {place // self.page_size}, unused"

    @property
    def output_shape(self) -> tuple[int, ...]:
        """``[B, H, Sq, Dv]``."""
        return (*self.query.shape[:3], self.value.shape[-1])

    @property
    def page_size(self) -> int:
        """Tokens to a page."""
        return int(self.key.shape[1])

    def slots_of(self, sequence: int) -> tuple[Array, Array]:
        """(page, slot in it) of every token of a sequence, in order."""
        tokens = np.arange(int(self.kv_lengths[sequence]))
        return self.page_table[sequence, tokens // self.page_size], tokens % self.page_size

    @cached_property
    def used(self) -> Array:
        """Which slots hold a token of some sequence: bool ``[P, page_size]``."""
        used = np.zeros(self.key.shape[:2], bool)
        for i in range(len(self.kv_lengths)):
            used[self.slots_of(i)] = True
        return used

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """One piece for each sequence."""
        found = []
        for i, length in enumerate(self.kv_lengths):
            slots = self.slots_of(i)
            query = self.query[i].swapaxes(0, 1)
            call = _call(self, query, self.key[slots], self.value[slots])
            take = partial(_row, row=i)
            label = f"sequence {i} ({int(length)} keys)"
            found.append(Piece(label=label, inputs=call, take=take, sequences=(i,)))
        return tuple(found)

    def without_scores(self) -> Self:
        """The same inputs with every score zero."""
        return self.but(key=np.zeros_like(self.key))

    def but(self, **changes: Any) -> Self:
        """The same inputs with some fields changed."""
        return replace(self, **changes)


def _row(output: Array, row: int) -> Array:
    return output[row : row + 1]


def _call(
    inputs: VarlenInputs | PagedInputs, query: Array, key: Array, value: Array
) -> AttentionInputs:
    """One sequence, from ``[tokens, heads, channels]``, as a call of attention."""
    window = inputs.window
    return AttentionInputs(
        query=query.swapaxes(0, 1)[None],
        key=key.swapaxes(0, 1)[None],
        value=value.swapaxes(0, 1)[None],
        kv_head_of=inputs.kv_head_of,
        dtype=inputs.dtype,
        causal=inputs.causal,
        window=window,
        band=(window - 1, 0) if isinstance(window, int) else window,
        scale=inputs.scale,
        softcap=inputs.softcap,
    )
