"""Ask a target one question at a time, at shapes that it takes; a refusal is an answer."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, ParamSpec, TypeVar

import numpy as np

from equivalence.case import HeadLayout
from equivalence.domain import Domain
from equivalence.dtypes import Array, rounded
from equivalence.inputs import AttentionInputs
from equivalence.outcome import Outcome, Target

ONE_KEY: Final = "the target takes a single key only"
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class NotAnswered:
    """A question without an answer: why the target was not asked, or what it did instead."""

    why: str


class Unanswered(Exception):
    """Ends a probe whose question got no answer; :func:`probe` turns it into NotAnswered."""


def probe(question: Callable[P, T]) -> Callable[P, T | NotAnswered]:
    """A question that never raises for what the target does."""

    @functools.wraps(question)
    def asked(*args: P.args, **kwargs: P.kwargs) -> T | NotAnswered:
        try:
            return question(*args, **kwargs)
        except Unanswered as reason:
            return NotAnswered(why=str(reason))

    return asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The sizes of one question, all within the limits of the target."""

    batch_size: int
    num_kv_heads: int
    group_size: int
    q_len: int
    kv_len: int
    head_dim: int
    value_head_dim: int

    @property
    def num_heads(self) -> int:
        """The number of query heads."""
        return self.num_kv_heads * self.group_size

    @property
    def query(self) -> tuple[int, int, int, int]:
        """``[B, H, Sq, D]``."""
        return (self.batch_size, self.num_heads, self.q_len, self.head_dim)

    @property
    def key(self) -> tuple[int, int, int, int]:
        """``[B, Hkv, Skv, D]``."""
        return (self.batch_size, self.num_kv_heads, self.kv_len, self.head_dim)

    @property
    def value(self) -> tuple[int, int, int, int]:
        """``[B, Hkv, Skv, Dv]``."""
        return (self.batch_size, self.num_kv_heads, self.kv_len, self.value_head_dim)


class Asker:
    """A target, what it accepts, the dtype of the questions, and how many were asked."""

    def __init__(self, target: Target, domain: Domain, dtype: str) -> None:
        self.target: Final = target
        self.domain: Final = domain
        self.dtype: Final = dtype
        self.calls = 0

    @property
    def always_causal(self) -> bool:
        """Whether every call to the target is a causal one."""
        return None not in self.domain.causal

    @property
    def one_row_only(self) -> bool:
        """Whether several query rows that see the same keys cannot be asked at once."""
        domain = self.domain
        if self.always_causal or domain.q_len[1] < 2:
            return True
        return domain.q_lens is not None and max(domain.q_lens) < 2

    def shape(
        self,
        *,
        batch_size: int = 1,
        num_kv_heads: int = 1,
        group_size: int = 1,
        q_len: int = 1,
        kv_len: int = 1,
        head_dim: int = 8,
        value_head_dim: int | None = None,
    ) -> Shape:
        """The sizes nearest to the wanted ones that the target takes."""
        domain = self.domain
        if domain.head_layouts:
            num_kv_heads, group_size, head_dim = min(
                domain.head_layouts,
                key=lambda x: (
                    abs(x[0] - num_kv_heads) + abs(x[1] - group_size),
                    x[2] < head_dim,
                    x[2],
                ),
            )
        head_dim = _nearest(head_dim, domain.head_dims)
        q_len = _nearest(_within(q_len, domain.q_len), domain.q_lens)
        kv_len = _nearest(kv_len, domain.kv_lens)
        if not domain.longer_queries:
            q_len = min(q_len, kv_len)
        if domain.square:
            q_len = kv_len = max(q_len, kv_len)
        if value_head_dim is None or not domain.value_head_dim_differs:
            value_head_dim = head_dim
        return Shape(
            batch_size=_within(batch_size, domain.batch_size),
            num_kv_heads=_within(num_kv_heads, domain.num_kv_heads),
            group_size=_within(group_size, domain.group_size),
            q_len=q_len,
            kv_len=kv_len,
            head_dim=head_dim,
            value_head_dim=value_head_dim,
        )

    def need(self, condition: bool, why: str) -> None:
        """End the question here unless ``condition``."""
        if not condition:
            raise Unanswered(why)

    def inputs(self, query: Array, key: Array, value: Array, **options: Any) -> AttentionInputs:
        """The inputs of one question; numbers are rounded to the dtype."""
        if self.always_causal:
            options.setdefault("causal", self.domain.causal[0])
        if options.get("mask") is not None:
            options["mask"] = self._mask_taken(options["mask"], query.shape)
        order = options.pop("head_order", self.domain.head_orders[0])
        groups = query.shape[1] // key.shape[1]
        if not isinstance(order, str) and len(order) != query.shape[1]:
            order = "grouped"
        layout = HeadLayout(num_kv_heads=key.shape[1], group_size=groups, order=order)
        return AttentionInputs(
            query=rounded(query, self.dtype),
            key=rounded(key, self.dtype),
            value=rounded(value, self.dtype),
            kv_head_of=np.asarray(layout.kv_head_of),
            dtype=self.dtype,
            head_order=order,
            **options,
        )

    def _mask_taken(self, mask: Array, shape: tuple[int, ...]) -> Array:
        """A mask with no axis but the keys, repeated along an axis that the target insists on."""
        axes = self.domain.mask_axes
        if mask.shape[:3] != (1, 1, 1) or "" in axes or not axes:
            return mask
        sizes = [size if name in axes[0] else 1 for name, size in zip("bhq", shape, strict=False)]
        return np.broadcast_to(mask, (*sizes, mask.shape[3])).copy()

    def call(self, inputs: AttentionInputs) -> Outcome:
        """One call, counted."""
        self.calls += 1
        return self.target.call(inputs)

    def output(self, inputs: AttentionInputs) -> Array:
        """The float64 output ``[B, H, Sq, Dv]`` of one call; ends the question without one."""
        outcome = self.call(inputs)
        wanted = (*inputs.query.shape[:3], inputs.value.shape[3])
        if outcome.status != "returned":
            raise Unanswered(f"{outcome.status}: {outcome.text}")
        if outcome.stored is None:
            raise Unanswered(outcome.text or "no array came back")
        if outcome.stored.shape != wanted:
            raise Unanswered(f"returned shape {outcome.stored.shape}, expected {wanted}")
        return outcome.output

    def ask(self, query: Array, key: Array, value: Array, **options: Any) -> Array:
        """The output ``[B, H, Sq, Dv]`` for these operands and options."""
        return self.output(self.inputs(query, key, value, **options))

    def ask_rows(self, query: Array, key: Array, value: Array, **options: Any) -> Array:
        """As :meth:`ask` where every row sees every key: as many rows at a time as can be."""
        rows, kv_len, step = query.shape[2], key.shape[2], self._rows_at_once(key.shape[2])
        found = []
        for start in range(0, rows, step):
            part = query[:, :, start : start + step]
            kept = part.shape[2]
            length = kv_len if self.domain.square else _nearest(kept, self.domain.q_lens)
            if length > kept:  # zeros in front: a causal target shows all keys to the last
                filler = np.zeros((*part.shape[:2], length - kept, part.shape[3]))
                part = np.concatenate([filler, part], axis=2)
            given = dict(options)
            mask = given.get("mask")
            if mask is not None and mask.shape[2] > 1:
                given["mask"] = np.broadcast_to(
                    mask[:, :, :1], (*mask.shape[:2], part.shape[2], kv_len)
                ).copy()
            found.append(self.ask(part, key, value, **given)[:, :, part.shape[2] - kept :])
        return np.concatenate(found, axis=2)

    def _rows_at_once(self, kv_len: int) -> int:
        domain = self.domain
        if self.one_row_only:
            return 1
        most = 128 if domain.q_lens is None else max(domain.q_lens)
        return min(most, kv_len) if domain.square or not domain.longer_queries else most


def _within(wanted: int, limits: tuple[int, int]) -> int:
    return max(limits[0], min(wanted, limits[1]))


def _nearest(wanted: int, choices: tuple[int, ...] | None) -> int:
    if not choices:
        return wanted
    large_enough = [choice for choice in choices if choice >= wanted]
    return min(large_enough) if large_enough else max(choices)
