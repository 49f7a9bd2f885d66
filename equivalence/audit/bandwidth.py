"""Tokens a second as bandwidth over bytes a token, and what measured speeds say of a graph.

This checks scale and direction. It is no measurement of DRAM traffic: caches may absorb reads that
a graph writes down twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from equivalence.errors import require

# MB/s (10^6 bytes), fitted to decode speeds on one phone: OptAI, "Removing the 1.9 GiB Per-Token
# Copy Caused by GQA repeat_kv", section 4.
PUBLISHED_BANDWIDTH: Final = 55_900.0
MEGABYTE: Final = 1e6


def tokens_per_second(megabytes: float, bandwidth: float = PUBLISHED_BANDWIDTH) -> float:
    """The speed of decoding where each token reads ``megabytes``, at ``bandwidth`` MB/s."""
    require(megabytes > 0 and bandwidth > 0, f"{megabytes} MB at {bandwidth} MB/s must be above 0")
    return bandwidth / megabytes


def megabytes_per_token(speed: float, bandwidth: float = PUBLISHED_BANDWIDTH) -> float:
    """What each token reads in effect, where ``speed`` tokens a second were measured."""
    require(speed > 0 and bandwidth > 0, f"{speed} tok/s at {bandwidth} MB/s must be above 0")
    return bandwidth / speed


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossCheck:
    """Two measured speeds beside the logical bytes that two graphs differ by.

    before, after: tokens a second. graph_bytes: logical bytes a token that the second lacks.
    """

    before: float
    after: float
    graph_bytes: int
    bandwidth: float = PUBLISHED_BANDWIDTH

    @property
    def inferred_megabytes(self) -> float:
        """What the speeds say that a token reads less."""
        before = megabytes_per_token(self.before, self.bandwidth)
        return before - megabytes_per_token(self.after, self.bandwidth)

    @property
    def graph_megabytes(self) -> float:
        """What the shapes say that a token moves less."""
        return self.graph_bytes / MEGABYTE

    @property
    def share(self) -> float:
        """The first as a share of the second."""
        return self.inferred_megabytes / self.graph_megabytes if self.graph_bytes else float("nan")

    @property
    def text(self) -> str:
        """One line."""
        said = (
            f"at {self.bandwidth:,.0f} MB/s, {self.before:g} and {self.after:g} tok/s differ by "
            f"{self.inferred_megabytes:,.0f} MB a token; the graphs by {self.graph_megabytes:,.0f} "
            "MB of logical bytes"
        )
        return said + (f" ({self.share:.0%} of it)" if self.graph_bytes else "")
