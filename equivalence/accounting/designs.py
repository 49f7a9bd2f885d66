"""Designs of attention at one shape: what each keeps for a token of a layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from equivalence.accounting.formulas import (
    equivalent_gqa_groups,
    kv_elements_per_token,
    mla_elements_per_token,
)
from equivalence.errors import require


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """One design: its elements per token and layer, and that many key/value heads' worth.

    smaller: how many times smaller than multi-head attention.
    """

    name: str
    elements: int
    kv_heads: float
    smaller: float


def compare_designs(
    *,
    num_heads: int,
    head_dim: int,
    kv_heads: Sequence[int] = (),
    latent_dim: int | None = None,
    rope_dim: int | None = None,
) -> list[Design]:
    """MHA, GQA with each of ``kv_heads``, MLA and MQA, the largest cache first.

    The latent is DeepSeek-V2's where it is not given: latent_dim = 4 head_dim and rope_dim =
    head_dim / 2. By default GQA has a quarter and an eighth of the heads.
    """
    require(num_heads >= 1 and head_dim >= 1, f"num_heads={num_heads}, head_dim={head_dim}")
    latent = 4 * head_dim if latent_dim is None else latent_dim
    rope = head_dim // 2 if rope_dim is None else rope_dim
    grouped = kv_heads or [num_heads // part for part in (4, 8) if num_heads % part == 0]
    for count in grouped:
        require(
            count >= 1 and num_heads % count == 0,
            f"num_heads={num_heads} must be a multiple of num_kv_heads={count}",
        )
    sizes = {
        f"MHA, {num_heads} heads": num_heads,
        **{f"GQA, {n} heads": n for n in grouped if 1 < n < num_heads},
    }
    if num_heads > 1:
        sizes["MQA, 1 head"] = 1
    elements = {
        name: kv_elements_per_token(num_kv_heads=n, head_dim=head_dim) for name, n in sizes.items()
    }
    elements[f"MLA, latent {latent}+{rope}"] = mla_elements_per_token(
        latent_dim=latent, rope_dim=rope
    )
    whole = kv_elements_per_token(num_kv_heads=num_heads, head_dim=head_dim)
    designs = [
        Design(
            name=name,
            elements=count,
            kv_heads=equivalent_gqa_groups(latent_dim=count, rope_dim=0, head_dim=head_dim),
            smaller=whole / count,
        )
        for name, count in elements.items()
    ]
    return sorted(designs, key=lambda design: -design.elements)
