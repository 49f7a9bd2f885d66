"""The set of latent-attention cases that make sense for a target: what strategies draw from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from equivalence.dtypes import DTYPES
from equivalence.latent.case import MEMORIES, VALUES, WEIGHTS

# (head_dim, value_head_dim, latent_dim, rope_dim) of published models, from their config.json.
MODEL_SIZES: Final[dict[str, tuple[int, int, int, int]]] = {
    "DeepSeek-V2": (128, 128, 512, 64),
    "MiniCPM3-4B": (64, 64, 256, 32),
    "Kimi-VL-A3B": (128, 128, 512, 64),
    "DeepSeek-V2 at a quarter": (32, 32, 128, 16),
    "DeepSeek-V2 at an eighth": (16, 16, 64, 8),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MlaDomain:
    """Ranges and choices, each ordered from the simplest. A strategy never leaves them.

    Ranges are inclusive pairs. sizes: (head_dim, value_head_dim, latent_dim, rope_dim) of models
    that may be drawn; only_sizes: the only ones, where a target takes no others. head_layouts:
    (num_kv_heads, group_size, head_dim) triples, as ``--like`` gives them. kv_lens and q_lens name
    the only lengths that a target takes. most_heads, most_tokens: how far the few cases go that are
    asked for on purpose. long_context allows kv_len up to 4,096 now and then.
    """

    dtypes: tuple[str, ...] = DTYPES
    batch_size: tuple[int, int] = (1, 3)
    num_heads: tuple[int, int] = (1, 5)
    head_dim: tuple[int, int] = (1, 20)
    latent_dim: tuple[int, int] = (1, 40)
    rope_dim: tuple[int, int] = (2, 16)
    value_head_dim_differs: bool = True
    sizes: tuple[tuple[int, int, int, int], ...] = tuple(dict.fromkeys(MODEL_SIZES.values()))
    only_sizes: tuple[tuple[int, int, int, int], ...] | None = None
    head_layouts: tuple[tuple[int, int, int], ...] | None = None
    q_len: tuple[int, int] = (1, 8)
    kv_len: tuple[int, int] = (1, 48)
    most_heads: int = 17
    most_tokens: int = 600
    q_lens: tuple[int, ...] | None = None
    kv_lens: tuple[int, ...] | None = None
    longer_queries: bool = True
    scale: bool = True
    values: tuple[str, ...] = VALUES
    weights: tuple[str, ...] = WEIGHTS
    memories: tuple[str, ...] = MEMORIES
    long_context: bool = False

    def but(self, **changes: Any) -> MlaDomain:
        """The same domain with some limits changed."""
        return replace(self, **changes)
