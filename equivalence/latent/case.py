"""What is asked of a latent-attention kernel: a small description that gives every tensor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from equivalence.dtypes import format_of
from equivalence.errors import require
from equivalence.pasteable import defaults_omitted
from equivalence.replay import register_case

MEMORIES: Final = ("contiguous", "joined", "cache", "bshd", "sliced", "transposed")
VALUES: Final = (
    "ramp",
    "zero",
    "normal",
    "offset",
    "equal_tokens",
    "one_hot",
    "outliers",
    "heavy_tailed",
    "cancellation",
    "peaky",
)
WEIGHTS: Final = ("plain", "realistic", "initial", "extreme")


@register_case
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MlaCase:
    """One call of multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1).

    Shapes: query_content ``[batch_size, num_heads, q_len, head_dim]``, query_rotary ``[batch_size,
    num_heads, q_len, rope_dim]``, latent ``[batch_size, kv_len, latent_dim]``, key_rotary
    ``[batch_size, kv_len, rope_dim]``, w_uk ``[num_heads, head_dim, latent_dim]``, w_uv
    ``[num_heads, value_head_dim, latent_dim]``. Causal, lower-right: the last query sees the last
    token.

    scale: None stands for (head_dim + rope_dim) ** -0.5. values: how queries and latents are made;
    magnitude multiplies the queries. weights: how the up-projections are made ("plain" ones select
    latent coordinates, "initial" ones have the paper's standard deviation of 0.006, "extreme" ones
    have gain 8 and outliers). query_rank: None, or the rank of the query compression (eq. 12 and
    13). latent_norm: whether the latent went through an RMS norm. memory: how the tensors lie in
    memory. Refuses any field out of its range.
    """

    batch_size: int = 1
    num_heads: int = 1
    head_dim: int = 1
    value_head_dim: int | None = None
    latent_dim: int = 1
    rope_dim: int = 2
    q_len: int = 1
    kv_len: int = 1
    dtype: str = "float32"
    scale: float | None = None
    values: str = "ramp"
    magnitude: float = 1.0
    weights: str = "plain"
    query_rank: int | None = None
    latent_norm: bool = False
    memory: str = "contiguous"
    seed: int = 0

    __repr__ = defaults_omitted

    def __post_init__(self) -> None:
        for name in ("batch_size", "num_heads", "head_dim", "latent_dim", "q_len"):
            require(getattr(self, name) >= 1, f"{name}={getattr(self, name)} must be at least 1")
        for name in ("value_head_dim", "query_rank"):
            given = getattr(self, name)
            require(given is None or given >= 1, f"{name}={given} must be at least 1")
        require(self.kv_len >= 0, f"kv_len={self.kv_len} must not be negative")
        require(
            self.rope_dim >= 2 and self.rope_dim % 2 == 0,
            f"rope_dim={self.rope_dim} must be even and at least 2: channels are rotated in pairs",
        )
        format_of(self.dtype)
        for name, known in (("values", VALUES), ("weights", WEIGHTS), ("memory", MEMORIES)):
            given = getattr(self, name)
            require(given in known, f"{name}={given!r} is not one of {known}")

    @property
    def v_dim(self) -> int:
        """The width of a value: ``value_head_dim``, or ``head_dim`` where that is None."""
        return self.head_dim if self.value_head_dim is None else self.value_head_dim

    @property
    def scale_value(self) -> float:
        """The factor of the scores: ``scale``, or (head_dim + rope_dim) ** -0.5."""
        default = float(self.head_dim + self.rope_dim) ** -0.5
        return default if self.scale is None else self.scale

    def but(self, **changes: Any) -> Self:
        """The same case with some fields changed."""
        return replace(self, **changes)

    def simpler(self) -> Iterator[Self]:
        """Cases that are simpler in two fields at once, which no single step reaches."""
        if self.q_len > 1 and self.kv_len > 1:
            yield self.but(q_len=1, kv_len=2)
            yield self.but(q_len=2, kv_len=2)
        if self.rope_dim > 2:
            yield self.but(rope_dim=2)
        for weights in WEIGHTS[1 : WEIGHTS.index(self.weights)]:
            yield self.but(weights=weights)
        for values in ("ramp", "normal"):
            if VALUES.index(values) < VALUES.index(self.values):
                yield self.but(values=values, magnitude=1.0)
