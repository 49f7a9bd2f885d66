"""Stateful testing of one's own cache: a machine that pytest and Hypothesis run as they are.

from equivalence.caches.machine import cache_machine
TestMyCache = cache_machine(my_factory, dtype="bfloat16").TestCase
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from equivalence.caches.case import CacheCase
from equivalence.caches.inputs import CacheInputs
from equivalence.caches.live import LiveCache, factory_arguments
from equivalence.caches.program import Operation, State
from equivalence.caches.subject import CacheSubject
from equivalence.caches.trials import try_cache
from equivalence.calling import opener
from equivalence.dtypes import Array, rounded, stored
from equivalence.outcome import Outcome


def cache_machine(
    factory: Callable[..., Any],
    *,
    batch_size: int = 2,
    num_kv_heads: int = 2,
    group_size: int = 2,
    head_dim: int = 8,
    max_len: int = 12,
    dtype: str = "float32",
    steps: int = 50,
    **facts: Any,
) -> type[RuleBasedStateMachine]:
    """A machine over caches of ``factory``: it compares every answer, and all positions.

    Only operations that the cache has are run. ``facts`` are what ``--declare`` takes. A failure
    is an AssertionError with the verdict and the program so far.
    """
    target = opener("kv_cache")(factory, getattr(factory, "__qualname__", "cache"), facts)
    trials = try_cache(target, (dtype,))
    domain = trials.domain
    if trials.base is None:
        raise ValueError(f"no tiny program worked: {trials.not_exercised.get('anything')}")
    subject = CacheSubject(target, domain)
    evicts = target.declaration.evicts is not None
    if domain.latents is not None:
        num_kv_heads, group_size = 1, num_kv_heads * group_size
    heads = CacheCase(num_kv_heads=num_kv_heads, group_size=group_size).num_heads
    head_of = np.arange(heads) // group_size
    # Of what is appended first and second (rotary keys and latents), and of a query.
    widths, content_dim = (head_dim, head_dim, head_dim), None
    if domain.latents is not None:
        latent_dim, rope_dim = max(domain.latents)
        widths, content_dim = (rope_dim, latent_dim, latent_dim + rope_dim), head_dim
    has = set(domain.words)
    ragged = domain.ragged and batch_size > 1 and not evicts

    class CacheMachine(RuleBasedStateMachine):
        """One cache and its fork, beside the model of what they keep."""

        def __init__(self) -> None:
            super().__init__()
            declared = target.declaration
            self.state = State.empty(batch_size)
            self.program: list[Operation] = []
            self.numbers = np.random.default_rng(0)
            self.key = self._fresh(0, num_kv_heads, widths[0])
            self.value = self._fresh(0, num_kv_heads, widths[1])
            sizes = self._inputs(self._fresh(0, heads, widths[2])).sizes
            self.live = LiveCache(
                cache=factory(**factory_arguments(factory, declared, sizes, dtype)),
                arrays=declared.arrays,
                device=declared.device,
                latent=content_dim is not None,
            )

        def _fresh(self, count: int, of: int, width: int) -> Array:
            return rounded(self.numbers.normal(size=(batch_size, of, count, width)), dtype)

        def _inputs(self, query: Array) -> CacheInputs:
            return CacheInputs(
                query=query,
                key=self.key,
                value=self.value,
                program=tuple(self.program),
                max_len=max_len,
                evicts=evicts,
                kv_head_of=head_of,
                dtype=dtype,
                content_dim=content_dim,
            )

        def _note(self, operation: Operation) -> None:
            self.state = self.state.after(operation, max_len=max_len, evicts=evicts)
            self.program.append(operation)
            found = self.live.positions()
            longest = max(self.state.rows, key=lambda row: len(row.positions))
            if found is not None and found.ndim == 1:
                shown = found.tolist()
                assert shown == list(longest.positions), (
                    f"positions is {shown}, expected {list(longest.positions)} "
                    f"after {tuple(self.program)}"
                )

        @property
        def room(self) -> int:
            return max_len if evicts else max_len - max(self.state.lengths)

        def _append(self, counts: list[int], lengths: tuple[int, ...] | None) -> None:
            count = max(counts)
            key = self._fresh(count, num_kv_heads, widths[0])
            value = self._fresh(count, num_kv_heads, widths[1])
            self.key = np.concatenate([self.key, key], axis=2)
            self.value = np.concatenate([self.value, value], axis=2)
            self.live.append(stored(key, dtype), stored(value, dtype), lengths)

        @precondition(lambda self: self.room > 0)
        @rule(count=st.integers(1, 5 if domain.chunks else 1))
        def append(self, count: int) -> None:
            """The same number of tokens for every row."""
            count = min(count, self.room)
            self._append([count], None)
            self._note(("append", count))

        @precondition(lambda self: ragged and self.room > 0)
        @rule(counts=st.lists(st.integers(0, 3), min_size=batch_size, max_size=batch_size))
        def append_unevenly(self, counts: list[int]) -> None:
            """Another number of tokens for each row."""
            counts = [
                min(n, max_len - kept) for n, kept in zip(counts, self.state.lengths, strict=True)
            ]
            if any(counts):
                self._append(counts, tuple(counts))
                self._note(("append", *counts))

        @precondition(lambda self: min(self.state.lengths) > 0)
        @rule(count=st.integers(1, 3 if domain.several_queries else 1))
        def attend(self, count: int) -> None:
            """Compare an answer with float64 attention over what is kept."""
            count = min(count, min(self.state.lengths))
            query = self._fresh(count, heads, widths[2])
            found = self.live.attend(stored(query, dtype))
            assert found is not None, f"attend returned no array after {tuple(self.program)}"
            self._note(("attend", count))
            piece = self._inputs(query).piece_at(slice(0, count), self.state, tuple(self.program))
            outcome = Outcome(status="returned", stored=found[0], dtype=found[1])
            verdict = subject.judge_piece(piece, outcome.output)
            assert verdict.trouble is None, f"{verdict.trouble} after {tuple(self.program)}"

        @precondition(lambda self: "truncate" in has and self._never_evicted())
        @rule(dropped=st.integers(0, 4))
        def truncate(self, dropped: int) -> None:
            """Forget the newest tokens."""
            length = max(0, max(self.state.lengths) - dropped)
            self.live.other(("truncate", length))
            self._note(("truncate", length))

        def _never_evicted(self) -> bool:
            return all(row.upcoming == len(row.tokens) for row in self.state.rows)

        @precondition(lambda self: "reorder" in has)
        @rule(
            rows=st.lists(st.integers(0, batch_size - 1), min_size=batch_size, max_size=batch_size)
        )
        def reorder(self, rows: list[int]) -> None:
            """Rows change places, or become copies of one."""
            self.live.other(("reorder", *rows))
            self._note(("reorder", *rows))

        @precondition(lambda self: "fork" in has)
        @rule()
        def fork(self) -> None:
            """Go on with a fork; the original stays aside."""
            self.live.other(("fork",))
            self._note(("fork",))

        @precondition(lambda self: self.state.aside is not None)
        @rule()
        def switch(self) -> None:
            """Go on with the one that is aside."""
            self.live.other(("switch",))
            self._note(("switch",))

    CacheMachine.TestCase.settings = settings(
        max_examples=20, stateful_step_count=steps, deadline=None
    )
    return CacheMachine
