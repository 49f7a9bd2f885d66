"""From a case to its six tensors: exact float64 images of numbers that the dtype can store."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Final, Self

import numpy as np

from equivalence.dtypes import Array, rounded
from equivalence.isolation.wire import register_inputs
from equivalence.latent.case import MlaCase

OPERANDS: Final = ("query_content", "query_rotary", "latent", "key_rotary", "w_uk", "w_uv")
NORM_EPSILON: Final = 1e-6


@dataclass(frozen=True, kw_only=True, eq=False)  # hashed by identity
class LatentInputs:
    """What a kernel is given, as exact float64 images of the stored numbers.

    Shapes: query_content ``[B, H, Sq, d]``, query_rotary ``[B, H, Sq, dR]``, latent ``[B, S, dc]``,
    key_rotary ``[B, S, dR]``, w_uk ``[H, d, dc]``, w_uv ``[H, dv, dc]``. The rotary parts are
    rotated already. ``scale`` is None where the default is meant.
    """

    query_content: Array
    query_rotary: Array
    latent: Array
    key_rotary: Array
    w_uk: Array
    w_uv: Array
    dtype: str
    scale: float | None = None
    memory: str = "contiguous"

    @property
    def scale_value(self) -> float:
        """The factor of the scores; by default (d + dR) ** -0.5, whatever the latent width."""
        width = self.query_content.shape[-1] + self.query_rotary.shape[-1]
        return float(width) ** -0.5 if self.scale is None else self.scale

    @cached_property
    def visible(self) -> Array:
        """Which (query, token) pairs may attend: bool ``[1, 1, Sq, S]``, causal, lower-right."""
        q_len, kv_len = self.query_content.shape[2], self.latent.shape[1]
        token = np.arange(kv_len)[None, None, None, :]
        return np.asarray(token <= np.arange(q_len)[None, None, :, None] + (kv_len - q_len))

    def but(self, **changes: Any) -> Self:
        """The same inputs with some fields changed."""
        return replace(self, **changes)


# A worker process is sent the tensors in the dtype that the kernel gets.
register_inputs(LatentInputs, frozenset(OPERANDS))


@lru_cache(maxsize=64)
def latent_inputs(case: MlaCase) -> LatentInputs:
    """The tensors of ``case``; the same case always gives the same numbers, on any machine."""
    latent, key_rotary = _tokens(case)
    w_uk, w_uv = up_projections(case)
    content, rotary = _queries(case, latent, key_rotary, w_uk)
    tensors = (content, rotary, latent, key_rotary, w_uk, w_uv)
    given = {
        name: rounded(tensor, case.dtype) for name, tensor in zip(OPERANDS, tensors, strict=True)
    }
    return LatentInputs(**given, dtype=case.dtype, scale=case.scale, memory=case.memory)


def normed(x: Array) -> Array:
    """RMS norm over the last axis, without a gain (Zhang and Sennrich 2019, eq. 4)."""
    return np.asarray(x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + NORM_EPSILON))


def up_projections(case: MlaCase) -> tuple[Array, Array]:
    """w_uk ``[H, d, dc]`` and w_uv ``[H, dv, dc]`` before rounding."""
    shapes = [(case.num_heads, rows, case.latent_dim) for rows in (case.head_dim, case.v_dim)]
    if case.weights == "plain":
        # Row i reads latent coordinate i; head h multiplies its values by h + 1.
        selectors = [_selecting(shape) for shape in shapes]
        return selectors[0], selectors[1] * (1.0 + np.arange(case.num_heads))[:, None, None]
    rng = np.random.default_rng([case.seed, 5])
    deviation = 0.006 if case.weights == "initial" else case.latent_dim**-0.5
    drawn = [deviation * rng.normal(size=shape) for shape in shapes]
    if case.weights == "extreme":
        drawn = [8.0 * np.where(rng.random(w.shape) < 0.02, 32.0 * w, w) for w in drawn]
    return drawn[0], drawn[1]


def _selecting(shape: tuple[int, int, int]) -> Array:
    row, column = np.arange(shape[1])[:, None], np.arange(shape[2])[None, :]
    return np.broadcast_to(column == row % shape[2], shape).astype(np.float64)


def _tokens(case: MlaCase) -> tuple[Array, Array]:
    """The latent ``[B, S, dc]`` and the rotary key ``[B, S, dR]`` of every token."""
    shape = (case.batch_size, case.kv_len, case.latent_dim)
    rotary_shape = (case.batch_size, case.kv_len, case.rope_dim)
    if case.values == "zero":
        return np.zeros(shape), np.zeros(rotary_shape)
    if case.values == "ramp":  # every token has a number of its own
        token = 1.0 + np.arange(case.batch_size * case.kv_len) % 251
        return np.broadcast_to(
            token.reshape(case.batch_size, case.kv_len, 1), shape
        ).copy(), np.zeros(rotary_shape)
    rng = np.random.default_rng([case.seed, 3])
    latent, key_rotary = rng.normal(size=shape), rng.normal(size=rotary_shape)
    match case.values:
        case "offset":
            latent = latent + 30.0
        case "equal_tokens":
            latent = np.broadcast_to(latent[:, :1], shape).copy()
            key_rotary = np.broadcast_to(key_rotary[:, :1], rotary_shape).copy()
        case "one_hot":
            latent = np.broadcast_to(np.eye(case.kv_len, case.latent_dim), shape).copy()
        case "outliers":
            latent = np.where(rng.random(shape) < 0.03, 50.0 * latent, latent)
            key_rotary = np.where(rng.random(rotary_shape) < 0.03, 20.0 * key_rotary, key_rotary)
        case "heavy_tailed":
            latent = np.clip(rng.standard_t(1.5, size=shape), -200, 200)
            key_rotary = np.clip(rng.standard_t(1.5, size=rotary_shape), -200, 200)
        case "cancellation":
            signs = np.where(np.arange(case.kv_len) % 2, -1.0, 1.0)[:, None]
            latent = 16.0 * signs * (1 + 0.01 * latent)
        case _:
            pass
    return (normed(latent) if case.latent_norm else latent), key_rotary


def _queries(case: MlaCase, latent: Array, key_rotary: Array, w_uk: Array) -> tuple[Array, Array]:
    """The content and the rotated part of the queries."""
    rows = (case.batch_size, case.num_heads, case.q_len)
    if case.values in ("zero", "ramp"):
        return np.zeros((*rows, case.head_dim)), np.zeros((*rows, case.rope_dim))
    rng = np.random.default_rng([case.seed, 7])
    if case.query_rank is None:
        content = rng.normal(size=(*rows, case.head_dim))
        rotary = rng.normal(size=(*rows, case.rope_dim))
    else:  # c_Q = RMSNorm(W_DQ h), q = W_UQ c_Q
        compressed = normed(rng.normal(size=(case.batch_size, 1, case.q_len, case.query_rank)))
        width = case.head_dim + case.rope_dim
        w_uq = rng.normal(size=(case.num_heads, width, case.query_rank)) * case.query_rank**-0.5
        query = compressed @ w_uq.swapaxes(-1, -2)
        content, rotary = query[..., : case.head_dim], query[..., case.head_dim :]
    if case.values == "peaky" and case.kv_len:
        chosen = rng.integers(0, case.kv_len, size=rows)
        batch = np.arange(case.batch_size)[:, None, None]
        heads = np.arange(case.num_heads)[None, :, None]
        keys = latent[:, None] @ w_uk.swapaxes(-1, -2)
        content = 3.0 * keys[batch, heads, chosen] + 0.1 * content
        rotary = 3.0 * key_rotary[batch, chosen] + 0.1 * rotary
    return case.magnitude * content, case.magnitude * rotary
