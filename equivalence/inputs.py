"""From a case to its tensors: exact float64 images of numbers that the dtype can store."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Self

import numpy as np

from equivalence.case import AttentionCase
from equivalence.dtypes import Array, rounded

ALIBI_BASE = 2.0**-1


@dataclass(frozen=True, kw_only=True, eq=False)  # hashed by identity
class AttentionInputs:
    """What a kernel is given, as exact float64 images of the stored numbers.

    Shapes: query ``[B, H, Sq, D]``, key ``[B, Hkv, Skv, D]``, value ``[B, Hkv, Skv, Dv]``, mask
    (bool, or the numbers of an additive one) of rank 4, sinks and alibi_slopes ``[H]``,
    kv_lengths ``[B]``. ``scale`` is a number here, ``None`` only where a kernel shall use its own
    default (then ``scale_value`` is head_dim ** -0.5). ``kv_head_of`` holds for each query head
    the key/value head that it reads.
    """

    query: Array
    key: Array
    value: Array
    kv_head_of: Array
    dtype: str
    mask: Array | None = None
    causal: str | None = None
    band: tuple[int, int] | None = None
    window: int | tuple[int, int] | None = None
    scale: float | None = None
    softcap: float | None = None
    sinks: Array | None = None
    alibi_slopes: Array | None = None
    kv_lengths: Array | None = None
    memory: str = "contiguous"
    head_order: str | tuple[int, ...] = "grouped"

    @property
    def scale_value(self) -> float:
        """The factor of the scores: ``scale``, or head_dim ** -0.5 where that is None."""
        return float(self.query.shape[-1]) ** -0.5 if self.scale is None else self.scale

    @cached_property
    def visible(self) -> Array:
        """Which (query, key) pairs may attend: bool, broadcastable to ``[B, H, Sq, Skv]``."""
        q_len, kv_len = self.query.shape[2], self.key.shape[2]
        key = np.arange(kv_len)[None, None, None, :]
        query = np.arange(q_len)[None, None, :, None]
        length = np.full((1, 1, 1, 1), kv_len)
        if self.kv_lengths is not None:
            length = np.asarray(self.kv_lengths)[:, None, None, None]
        keep = key < length
        diagonal = query + (length - q_len)
        if self.causal is not None:
            keep = keep & (key <= (query if self.causal == "upper_left" else diagonal))
        if self.band is not None:
            left, right = self.band
            if left >= 0:
                keep = keep & (key >= diagonal - left)
            if right >= 0:
                keep = keep & (key <= diagonal + right)
        if self.mask is not None:
            keep = keep & (self.mask if self.mask.dtype == bool else self.mask > -np.inf)
        return np.asarray(keep)

    @cached_property
    def bias(self) -> Array | None:
        """What is added to the visible scores, broadcastable to ``[B, H, Sq, Skv]``, or None."""
        parts = self._bias_parts
        return sum(parts[1:], start=parts[0]) if parts else None

    @cached_property
    def bias_size(self) -> Array | None:
        """The sum of the absolute biases: what a kernel rounds where mask and ALiBi cancel."""
        parts = [np.abs(part) for part in self._bias_parts]
        return sum(parts[1:], start=parts[0]) if parts else None

    @cached_property
    def _bias_parts(self) -> list[Array]:
        parts: list[Array] = []
        if self.mask is not None and self.mask.dtype != bool:
            parts.append(np.where(self.mask == -np.inf, 0.0, self.mask))
        if self.alibi_slopes is not None:
            q_len, kv_len = self.query.shape[2], self.key.shape[2]
            length = np.full((1, 1, 1, 1), kv_len)
            if self.kv_lengths is not None:
                length = np.asarray(self.kv_lengths)[:, None, None, None]
            distance = np.abs(
                np.arange(q_len)[:, None] + (length - q_len) - np.arange(kv_len)[None, :]
            )
            parts.append(-self.alibi_slopes[None, :, None, None] * distance)
        return parts

    def but(self, **changes: Any) -> Self:
        """The same inputs with some fields changed."""
        return replace(self, **changes)


@lru_cache(maxsize=64)
def attention_inputs(case: AttentionCase) -> AttentionInputs:
    """The tensors of ``case``; the same case always gives the same numbers, on any machine."""
    held = _numbers(
        case.values, case.magnitude, case.seed, case.dtype, case.heads.kv_head_of,
        (case.batch_size, case.num_heads, case.q_len, case.head_dim),
        (case.batch_size, case.num_kv_heads, case.kv_len, case.head_dim),
        (case.batch_size, case.num_kv_heads, case.kv_len, case.v_dim),
    )  # fmt: skip
    if case.plants or case.memory == "expanded":  # written to below
        held = (held[0].copy(), held[1].copy(), held[2].copy())
    query, key, value = held
    operands = {"query": query, "key": key, "value": value}
    for operand, head, position, number in case.plants:
        tensor = operands[operand]
        if tensor.shape[2]:
            row = rounded(np.asarray(number), case.dtype)
            tensor[:, head % tensor.shape[1], position % tensor.shape[2]] = row
    if case.memory == "expanded":  # a stride-0 head axis: every key/value head holds the first
        key[:] = key[:, :1]
        value[:] = value[:, :1]
    mask = sinks = None
    if case.sinks:
        sinks = np.random.default_rng([case.seed, 11]).normal(size=case.num_heads)
    if case.mask is not None:
        mask = case.mask.tensor(
            case.batch_size, case.num_heads, case.q_len, case.kv_len, case.dtype
        )
        if mask.dtype != bool:
            mask = np.where(mask == -np.inf, mask, rounded(mask, case.dtype))
    return AttentionInputs(
        query=query,
        key=key,
        value=value,
        kv_head_of=np.asarray(case.heads.kv_head_of),
        dtype=case.dtype,
        mask=mask,
        causal=case.causal,
        band=case.band,
        window=case.window,
        scale=case.scale,
        softcap=case.softcap,
        sinks=None if sinks is None else rounded(sinks, "float32"),
        alibi_slopes=(ALIBI_BASE ** (1.0 + np.arange(case.num_heads) % 8) if case.alibi else None),
        kv_lengths=None if case.kv_lengths is None else np.asarray(case.kv_lengths, np.int64),
        memory=case.memory,
        head_order=case.head_order,
    )


@lru_cache(maxsize=16)
def _numbers(
    values: str,
    magnitude: float,
    seed: int,
    dtype: str,
    kv_head_of: tuple[int, ...],
    q_shape: tuple[int, ...],
    k_shape: tuple[int, ...],
    v_shape: tuple[int, ...],
) -> tuple[Array, Array, Array]:
    """Query, key and value as stored; many laws ask for the same ones under other options."""
    drawn = _operands(values, magnitude, seed, kv_head_of, q_shape, k_shape, v_shape)
    query, key, value = (rounded(x, dtype) for x in drawn)
    for array in (query, key, value):
        array.flags.writeable = False
    return query, key, value


def _operands(
    values: str,
    magnitude: float,
    seed: int,
    kv_head_of: tuple[int, ...],
    q_shape: tuple[int, ...],
    k_shape: tuple[int, ...],
    v_shape: tuple[int, ...],
) -> tuple[Array, Array, Array]:
    """Query, key and value before rounding."""
    (b, h, q_len, _), (_, g, kv_len, _) = q_shape, k_shape
    if values in ("zero", "ramp", "steps"):
        return np.zeros(q_shape), np.zeros(k_shape), _followed_by_eye(values, v_shape)
    rng = np.random.default_rng([seed, 3])
    query: Array
    key: Array
    value: Array
    query, key, value = (rng.normal(size=shape) for shape in (q_shape, k_shape, v_shape))
    match values:
        case "one_hot":
            heads = np.arange(1.0, g + 1)[None, :, None, None]
            value = heads * np.broadcast_to(np.eye(kv_len, v_shape[3]), v_shape)
        case "offset":
            value = value + 100.0
        case "equal_keys":
            key = np.broadcast_to(key[:, :, :1], k_shape).copy()
        case "outliers":
            key = np.where(rng.random(k_shape) < 0.02, 40.0 * key, key)
            value = np.where(rng.random(v_shape) < 0.02, 100.0 * value, value)
        case "heavy_tailed":
            query, key, value = (
                np.clip(rng.standard_t(1.5, size=s), -200, 200) for s in (q_shape, k_shape, v_shape)
            )
        case "cancellation":
            signs = np.where(np.arange(kv_len) % 2, -1.0, 1.0)[:, None]
            value = 64.0 * signs * (1 + 0.01 * value)
        case "peaky" if kv_len:
            chosen = rng.integers(0, kv_len, size=(b, h, q_len))
            rows = np.arange(b)[:, None, None]
            heads = np.asarray(kv_head_of)[None, :, None]
            query = 4.0 * key[rows, heads, chosen] + 0.1 * query
        case "long_sum":  # large values of nearly equal weight
            query, value = 0.05 * query, 2048.0 * (1 + 0.1 * value)
        case _:
            pass
    return magnitude * query, key, value


def _followed_by_eye(values: str, shape: tuple[int, ...]) -> Array:
    """Small whole numbers: ``ramp`` names the kv head, ``steps`` the (batch, head, key) slot."""
    if values == "zero":
        return np.zeros(shape)
    head = np.arange(shape[1])[None, :, None, None]
    if values == "ramp":
        return np.broadcast_to(head + 1.0, shape).copy()
    batch = np.arange(shape[0])[:, None, None, None]
    key = np.arange(shape[2])[None, None, :, None]
    slot = (batch * shape[1] + head) * shape[2] + key
    return np.broadcast_to(slot % 251 + 1.0, shape).copy()
