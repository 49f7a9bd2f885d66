"""A layer of attention: any of the formulations between the projections of a model."""

from __future__ import annotations

from typing import Final

from torch import Tensor, nn

from equivalence.converters.formulations import ROLES


class Projected(nn.Module):
    """query_hidden ``[B, Sq, M]`` and hidden ``[B, Skv, M]`` -> ``[B, 1, Sq, M]``.

    attend: the formulation, of query, key, value and maybe a mask. weights: by role, ``[out, in]``.
    """

    def __init__(
        self, attend: nn.Module, weights: dict[str, Tensor], *, num_heads: int, num_kv_heads: int
    ) -> None:
        super().__init__()
        self.attend: Final = attend
        self.num_heads: Final = num_heads
        self.num_kv_heads: Final = num_kv_heads
        query, key, value, output = (_linear(weights[role]) for role in ROLES)
        self.query_projection = query
        self.key_projection = key
        self.value_projection = value
        self.output_projection = output

    def heads(self, made: Tensor, count: int) -> Tensor:
        """``[B, S, heads * D]`` -> ``[B, heads, S, D]``."""
        width = made.shape[2] // count
        return made.reshape(made.shape[0], made.shape[1], count, width).transpose(1, 2)

    def forward(self, query_hidden: Tensor, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
        query = self.heads(self.query_projection(query_hidden), self.num_heads)
        key = self.heads(self.key_projection(hidden), self.num_kv_heads)
        value = self.heads(self.value_projection(hidden), self.num_kv_heads)
        operands = (query, key, value) if mask is None else (query, key, value, mask)
        output = self.attend(*operands).transpose(1, 2)
        joined = output.reshape(output.shape[0], output.shape[1], -1)
        made: Tensor = self.output_projection(joined)
        return made[:, None]


def _linear(weight: Tensor) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    layer.weight = nn.Parameter(weight, requires_grad=False)
    return layer
