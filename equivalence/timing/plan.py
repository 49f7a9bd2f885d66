"""What a table is about: its formulations, head counts, formats and sizes, and what they need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from equivalence.calling import LocalTarget
from equivalence.dtypes import format_of
from equivalence.errors import require
from equivalence.timing.estimate import ROUNDS
from equivalence.timing.floor import BEYOND, last_level_cache

FORMULATIONS: Final = (
    "torch.repeat_interleave",
    "torch.repeat_kv",
    "torch.broadcast_matmul",
    "torch.sdpa",
    "torch.sdpa_gqa_math",
    "torch.sdpa_gqa",
    "torch.sdpa_gqa_flash",
    "torch.grouped_matmul",
    "torch.q_fold",
    "torch.fused_grouped",
)
QUANTISED: Final = ("cache.int8_blocks",)
KV_HEADS: Final = (32, 8, 4, 2, 1)
CONTEXTS: Final = tuple(2**power for power in range(10, 16))
MEMORY_SHARE: Final = 16  # of what is free, for the largest cache, where the context is chosen
REFUSED_SHARE: Final = 0.7  # of what is free, beyond which a request is refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What every row of a table has in common."""

    batch_size: int = 1
    num_heads: int = 32
    q_len: int = 1
    kv_len: int = 4096
    head_dim: int = 128

    def cache_bytes(self, num_kv_heads: int, dtype: str) -> int:
        """Bytes of keys and values: 2 B Hkv S D elements."""
        elements = 2 * self.batch_size * num_kv_heads * self.kv_len * self.head_dim
        return elements * (format_of(dtype).bits // 8)

    def flops(self, *, causal: bool) -> int:
        """Two for each product and sum: 4 B H Sq Skv D, over the visible pairs."""
        pairs = self.q_len * self.kv_len
        if causal:
            pairs = sum(self.kv_len - self.q_len + row + 1 for row in range(self.q_len))
        return 4 * self.batch_size * self.num_heads * pairs * self.head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One run: ``targets`` and ``kv_heads`` in the order of the table.

    crashes: what a first call in a worker process ended in; such a target is not called here.
    """

    command: str
    targets: Sequence[LocalTarget]
    kv_heads: Sequence[int]
    dtypes: Sequence[str]
    sizes: Sizes
    rounds: int = ROUNDS
    threads: int = 1
    device: str = "cpu"
    seed: int = 0
    crashes: Mapping[str, str] = field(default_factory=dict)

    @property
    def causal(self) -> bool:
        """Whether a query may only see its past: at prefill."""
        return self.sizes.q_len > 1


def chosen_context(
    *, batch_size: int, num_heads: int, head_dim: int, dtypes: Sequence[str], free: int
) -> int:
    """The shortest context whose largest cache does not fit the last-level cache four times over.

    At KV heads = query heads, in the widest format; never more than a sixteenth of ``free`` bytes.
    """
    last_level, _ = last_level_cache()
    width = max(format_of(dtype).bits for dtype in dtypes) // 8
    token = 2 * batch_size * num_heads * head_dim * width
    fitting = [length for length in CONTEXTS if length * token * MEMORY_SHARE <= free]
    long: list[int] = [length for length in fitting if length * token >= BEYOND * last_level]
    return min(long) if long else max(fitting, default=CONTEXTS[0])


def needed(plan: Plan) -> int:
    """Bytes that a run takes: every cache, and one that is written out again with its heads."""
    widest = max(plan.dtypes, key=lambda dtype: format_of(dtype).bits)
    largest = plan.sizes.cache_bytes(plan.sizes.num_heads, widest)
    kept = sum(plan.sizes.cache_bytes(heads, widest) for heads in plan.kv_heads)
    scores = plan.sizes.batch_size * plan.sizes.num_heads * plan.sizes.q_len * plan.sizes.kv_len * 4
    return 3 * kept + 3 * largest + 4 * scores


def require_fits(size: int, free: int) -> None:
    """Refuse a run of about ``size`` bytes where less than that is free."""
    require(
        size <= REFUSED_SHARE * free,
        f"these sizes need about {size / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB are free: "
        "give a smaller --batch or --context",
    )
