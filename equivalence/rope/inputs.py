"""From a rotary case to its tensor and positions: exact float64 images of stored numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Self

import numpy as np

from equivalence.dtypes import Array, rounded
from equivalence.errors import require
from equivalence.rope.case import THETA, RotaryCase, check_dimensions, check_scaling
from equivalence.rope.scaling import RopeScaling


@dataclass(frozen=True, kw_only=True, eq=False)  # hashed by identity
class RotaryInputs:
    """What a rotary embedding is given.

    x ``[B, H, S, D]``: the stored numbers as float64. positions: int64 ``[S]`` or ``[B, S]``.
    rotary_dim None: all channels. attention_factor None: what the scaling says. Refuses
    positions of the wrong length, with both lengths.
    """

    x: Array
    positions: Array
    dtype: str
    pairing: str = "half"
    theta: float = THETA
    rotary_dim: int | None = None
    scaling: RopeScaling | None = None
    attention_factor: float | None = None
    memory: str = "contiguous"

    def __post_init__(self) -> None:
        batch_size, _, seq_len, head_dim = self.x.shape
        require(
            self.positions.shape in ((seq_len,), (batch_size, seq_len)),
            f"positions {list(self.positions.shape)} must have shape [{seq_len}] or "
            f"[{batch_size}, {seq_len}] for x {list(self.x.shape)}",
        )
        require(
            not self.positions.size or int(self.positions.min()) >= 0,
            "positions must not be negative",
        )
        check_dimensions(head_dim, self.turning)
        check_scaling(self.scaling, self.turning)

    @property
    def turning(self) -> int:
        """How many channels move."""
        return int(self.x.shape[-1]) if self.rotary_dim is None else self.rotary_dim

    @property
    def length(self) -> int:
        """The length that dynamic scaling sees: the largest position + 1."""
        return int(self.positions.max(initial=0)) + 1

    @property
    def by_row(self) -> Array:
        """The positions as int64 ``[B or 1, S]``."""
        return self.positions if self.positions.ndim == 2 else self.positions[None]

    def but(self, **changes: Any) -> Self:
        """The same inputs with some fields changed."""
        return replace(self, **changes)


@lru_cache(maxsize=64)
def rotary_inputs(case: RotaryCase) -> RotaryInputs:
    """The tensors of ``case``; the same case always gives the same numbers, on any machine."""
    return RotaryInputs(
        x=rounded(_numbers(case), case.dtype),
        positions=case.positions(),
        dtype=case.dtype,
        pairing=case.pairing,
        theta=case.theta,
        rotary_dim=case.rotary_dim,
        scaling=case.scaling,
        attention_factor=case.attention_factor,
        memory=case.memory,
    )


def _numbers(case: RotaryCase) -> Array:
    """x before rounding."""
    shape = (case.batch_size, case.num_heads, case.seq_len, case.head_dim)
    size = int(np.prod(shape))
    if case.values == "ramp":  # whole numbers that name their place
        return (np.arange(size) % 251 + 1.0).reshape(shape)
    if case.values == "one_hot":  # each token has one channel, another one than its neighbour
        tokens = np.arange(size // case.head_dim) + case.seed
        return np.asarray(case.magnitude * np.eye(case.head_dim)[tokens % case.head_dim]).reshape(
            shape
        )
    rng = np.random.default_rng([case.seed, 5])
    x = rng.normal(size=shape)
    match case.values:
        case "outliers":
            x = np.where(rng.random(shape) < 0.05, 100.0 * x, x)
        case "heavy_tailed":
            x = np.clip(rng.standard_t(1.5, size=shape), -1e4, 1e4)
        case "cancellation":  # equal sizes: at odd multiples of pi / 4 one product cancels another
            x = np.sign(x) * (1.0 + 2.0**-6 * np.abs(x))
        case _:
            pass
    return np.asarray(case.magnitude * x)
