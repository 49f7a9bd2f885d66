"""What a latent cache holds, beside what grouped heads would hold."""

from __future__ import annotations

from equivalence.accounting import equivalent_gqa_groups, mla_elements_per_token
from equivalence.dtypes import format_of
from equivalence.latent.case import MlaCase


def cache_elements_per_token(case: MlaCase) -> int:
    """latent_dim + rope_dim: the latent and the one rotary key (DeepSeek-V2, table 1)."""
    return mla_elements_per_token(latent_dim=case.latent_dim, rope_dim=case.rope_dim)


def cache_bytes(case: MlaCase) -> int:
    """The bytes that one layer's cache holds for all tokens and batch rows."""
    elements = case.batch_size * case.kv_len * cache_elements_per_token(case)
    return elements * format_of(case.dtype).bits // 8


def equivalent_grouped_heads(case: MlaCase) -> float:
    """(latent_dim + rope_dim) / (2 head_dim): key/value heads whose cache is as large."""
    return equivalent_gqa_groups(
        latent_dim=case.latent_dim, rope_dim=case.rope_dim, head_dim=case.head_dim
    )
