"""The tokens and queries of a cache program, and the attention calls that it amounts to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import ClassVar, Final, Self

import numpy as np

from equivalence.caches.case import CacheCase
from equivalence.caches.program import Program, State, states
from equivalence.case import AttentionCase
from equivalence.dtypes import Array
from equivalence.inputs import AttentionInputs, attention_inputs
from equivalence.piecewise import Piece

# Families of numbers whose point is in the values: latents are made of these, else of the keys.
TOLD_BY_VALUE: Final = ("zero", "ramp", "steps", "one_hot")


@dataclass(frozen=True, kw_only=True, eq=False)  # hashed by identity
class CacheInputs:
    """A program with its numbers, as exact float64 images of the stored ones.

    query ``[B, H, Q, D]``, key and value ``[B, Hkv, T, D]``: all queries and tokens that the
    program uses, in order. The output is ``[B, H, Q, D]``, the answers one after the other.
    content_dim: None, or of a cache of latents the head_dim that its scale counts; then key holds
    the rotary keys ``[B, 1, T, dR]``, value the latents ``[B, 1, T, dc]``, a query is ``dc + dR``
    wide, and what it is held against is an entry of both.
    poisoned: memory that the cache allocates without a value holds NaN.
    overflowing: the last operation appends past max_len.
    """

    query: Array
    key: Array
    value: Array
    program: Program
    max_len: int
    evicts: bool
    kv_head_of: Array
    dtype: str
    content_dim: int | None = None
    poisoned: bool = False
    overflowing: bool = False

    head_axis: ClassVar[int] = 1  # of key and value

    def own_places(self, piece: Piece, row: int) -> Array:
        """The places of the tokens that a row keeps at an answer, in order (see ``Weights``)."""
        state = self.kept_by(self.pieces.index(piece))
        width = self.key.shape[2]
        return np.asarray([src * width + t for src, t in state.rows[row].tokens], np.int64)

    def owner(self, place: int) -> str:
        """Whose token lies at a place, in words."""
        row, token = divmod(place, self.key.shape[2])
        return f"token {token} of row {row}"

    def without_scores(self) -> Self:
        """The same inputs with every score zero, whatever the values are."""
        silenced = self.but(key=np.zeros_like(self.key))
        if self.content_dim is None:
            return silenced
        return silenced.but(query=np.zeros_like(self.query))  # a latent is a key as well

    @property
    def sizes(self) -> dict[str, int]:
        """What a factory is told: its sizes by name."""
        sizes = {"batch_size": self.batch_size, "num_kv_heads": int(self.key.shape[1])}
        if self.content_dim is None:
            return {**sizes, "head_dim": int(self.key.shape[3]), "max_len": self.max_len}
        return {
            **sizes,
            "head_dim": self.content_dim,
            "latent_dim": int(self.value.shape[3]),
            "rope_dim": int(self.key.shape[3]),
            "max_len": self.max_len,
        }

    @property
    def batch_size(self) -> int:
        """The number of batch rows."""
        return int(self.key.shape[0])

    @property
    def output_shape(self) -> tuple[int, ...]:
        """``[B, H, Q, D]``."""
        return (*self.query.shape[:3], self.value.shape[-1])

    @cached_property
    def states(self) -> tuple[State, ...]:
        """What a correct cache keeps after each operation (but the overflowing one)."""
        program = self.program[:-1] if self.overflowing else self.program
        return states(program, batch_size=self.batch_size, max_len=self.max_len, evicts=self.evicts)

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """One piece for each answer."""
        found, start = [], 0
        for step, state in enumerate(self.states):
            if self.program[step][0] != "attend":
                continue
            queries = slice(start, state.queries)
            start = state.queries
            found.append(self.piece_at(queries, state, self.program[: step + 1]))
        return tuple(found)

    def piece_at(self, queries: slice, state: State, program: Program) -> Piece:
        """The answer to ``queries`` when ``program`` has led to ``state``."""
        return Piece(
            label=f"operation {len(program) - 1}, {program[-1]},",
            inputs=self._call(queries, state),
            take=partial(_columns, columns=queries),
            sequences=tuple(range(self.batch_size)),
            facts=self._tallest(state),
        )

    def _tallest(self, state: State) -> dict[str, Array]:
        """The largest |k| and |v| that each row and head was given so far: ``[B, Hkv]``."""
        mixed = any(op[0] == "reorder" for op in self.program)
        found = {}
        for name in ("key", "value"):
            seen = np.abs(np.nan_to_num(getattr(self, name)[:, :, : state.tokens]))
            tallest = seen.max(axis=(2, 3), initial=0.0)
            found[name] = np.broadcast_to(tallest.max(0), tallest.shape) if mixed else tallest
        if self.content_dim is not None:  # one entry, which may have one step
            both = np.maximum(found["key"], found["value"])
            found = {"key": both, "value": both}
        return found

    def kept_by(self, piece_number: int) -> State:
        """The state at an answer."""
        steps = [i for i, op in enumerate(self.program) if op[0] == "attend"]
        return self.states[steps[piece_number]]

    def _call(self, queries: slice, state: State) -> AttentionInputs:
        lengths = np.asarray(state.lengths)
        longest = int(lengths.max(initial=0))
        source = np.zeros((self.batch_size, longest), np.int64)
        token = np.zeros((self.batch_size, longest), np.int64)
        for row, kept in enumerate(state.rows):
            if kept.tokens:
                pairs = np.asarray(kept.tokens)
                source[row, : len(pairs)], token[row, : len(pairs)] = pairs[:, 0], pairs[:, 1]
        ragged = bool((lengths != longest).any())
        # [B, L, Hkv, D] -> [B, Hkv, L, D]
        key = self.key[source, :, token].swapaxes(1, 2)
        value = self.value[source, :, token].swapaxes(1, 2)
        scale = None
        if self.content_dim is not None:
            scale = float(self.content_dim + key.shape[-1]) ** -0.5
            key = np.concatenate([value, key], axis=-1)
        return AttentionInputs(
            query=self.query[:, :, queries],
            key=key,
            value=value,
            kv_head_of=self.kv_head_of,
            dtype=self.dtype,
            causal="lower_right",
            scale=scale,
            kv_lengths=lengths if ragged else None,
        )

    def but(self, **changes: object) -> Self:
        """The same inputs with some fields changed."""
        return replace(self, **changes)  # type: ignore[arg-type]


def _columns(output: Array, columns: slice) -> Array:
    return output[:, :, columns]


@lru_cache(maxsize=64)
def cache_inputs(case: CacheCase) -> CacheInputs:
    """The numbers of ``case``; the same case always gives the same ones."""
    last = case.states[-1]
    width = case.head_dim if case.latent_dim is None else case.latent_dim + case.rope_dim
    numbers = attention_inputs(
        AttentionCase(
            batch_size=case.batch_size,
            num_kv_heads=case.num_kv_heads,
            group_size=case.group_size,
            q_len=last.queries,
            kv_len=last.tokens,
            head_dim=width,
            value_head_dim=case.latent_dim,
            dtype=case.dtype,
            values=case.values,
            magnitude=case.magnitude,
            seed=case.seed,
        )
    )
    key, value = numbers.key, numbers.value
    if case.latent_dim is not None:
        latent, key = np.split(key, [case.latent_dim], axis=-1)
        value = value if case.values in TOLD_BY_VALUE else latent
    return CacheInputs(
        query=numbers.query,
        key=key,
        value=value,
        program=case.program,
        max_len=case.max_len,
        evicts=case.evicts,
        kv_head_of=numbers.kv_head_of,
        dtype=case.dtype,
        content_dim=None if case.latent_dim is None else case.head_dim,
    )
