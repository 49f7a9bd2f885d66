"""torch's scaled_dot_product_attention as a module, for runtimes that convert one."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional


class SdpaModule(nn.Module):
    """Grouped attention by ``enable_gqa``; constants of the graph are given when it is made."""

    def __init__(self, is_causal: bool, scale: float | None) -> None:
        super().__init__()
        self.is_causal, self.scale = is_causal, scale

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """query ``[B, H, Sq, D]``, key ``[B, Hkv, Skv, D]``, value ``[B, Hkv, Skv, Dv]``."""
        return functional.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=mask,
            is_causal=self.is_causal,
            scale=self.scale,
            enable_gqa=True,
        )
