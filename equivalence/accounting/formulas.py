"""The arithmetic of one token, which all the rest multiplies."""

from __future__ import annotations

from equivalence.errors import require


def kv_elements_per_token(
    *, num_kv_heads: int, head_dim: int, value_head_dim: int | None = None, num_layers: int = 1
) -> int:
    """num_layers * num_kv_heads * (head_dim + value_head_dim): one key and one value a head.

    Multi-head attention has num_kv_heads = num_heads; multi-query attention has 1 (Shazeer 2019);
    grouped-query attention lies between (Ainslie et al. 2023). The query heads do not count.
    """
    width = head_dim + (head_dim if value_head_dim is None else value_head_dim)
    _sizes(num_kv_heads=num_kv_heads, head_dim=head_dim, num_layers=num_layers)
    return num_layers * num_kv_heads * width


def mla_elements_per_token(*, latent_dim: int, rope_dim: int, num_layers: int = 1) -> int:
    """num_layers * (latent_dim + rope_dim): the latent and the one rotary key of all heads.

    DeepSeek-V2 (2024), section 2.1.4 and table 1, where they are called d_c and d_h^R.
    """
    _sizes(latent_dim=latent_dim, num_layers=num_layers)
    require(rope_dim >= 0, f"rope_dim={rope_dim} must be at least 0")
    return num_layers * (latent_dim + rope_dim)


def equivalent_gqa_groups(
    *, latent_dim: int, rope_dim: int, head_dim: int, value_head_dim: int | None = None
) -> float:
    """The key/value heads whose cache is as large as the latent's (2.25 in DeepSeek-V2)."""
    one_head = kv_elements_per_token(
        num_kv_heads=1, head_dim=head_dim, value_head_dim=value_head_dim
    )
    return mla_elements_per_token(latent_dim=latent_dim, rope_dim=rope_dim) / one_head


def _sizes(**sizes: int) -> None:
    for name, size in sizes.items():
        require(size >= 1, f"{name}={size} must be at least 1")
