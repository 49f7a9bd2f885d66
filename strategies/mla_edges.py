"""Latent-attention cases that few draws meet: many heads, and many tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from equivalence.latent.case import MlaCase
from equivalence.latent.domain import MlaDomain

SIZES: Final = (6, 5, 7, 4)  # no two alike
QUERIES: Final = 3


def mla_edges(domain: MlaDomain, seed: int) -> Iterator[MlaCase]:
    """More heads, and more tokens, than drawn cases have: beyond the first tile or split."""
    fields: dict[str, Any] = {
        "dtype": domain.dtypes[0],
        "values": "normal" if "normal" in domain.values else domain.values[0],
        "weights": "realistic" if "realistic" in domain.weights else domain.weights[0],
        "seed": seed % 2**16,
    }
    if fields["values"] in ("ramp", "zero"):
        return
    sizes = domain.only_sizes[0] if domain.only_sizes is not None else SIZES
    names = ("head_dim", "value_head_dim", "latent_dim", "rope_dim")
    fields |= dict(zip(names, sizes, strict=True))
    if not domain.value_head_dim_differs:
        fields["value_head_dim"] = None
    open_lengths = domain.q_lens is None and domain.kv_lens is None and domain.head_layouts is None
    if open_lengths and domain.num_heads[1] > 1:
        yield MlaCase(**fields, num_heads=domain.most_heads, q_len=1, kv_len=QUERIES)
    if open_lengths and domain.kv_len[1] > 1:
        queries = max(domain.q_len[0], min(QUERIES, domain.q_len[1]))
        heads = max(domain.num_heads[0], min(2, domain.num_heads[1]))
        yield MlaCase(**fields, num_heads=heads, q_len=queries, kv_len=domain.most_tokens)
