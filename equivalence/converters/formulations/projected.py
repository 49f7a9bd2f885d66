"""A layer of attention: any of the formulations between the projections of a model."""

from __future__ import annotations

from typing import Any, Final

from torch import Tensor, nn

from equivalence.converters.formulations import ROLES
from equivalence.converters.formulations.caches import CacheModule


class Layer(nn.Module):
    """The four projections around a formulation. weights: by role, ``[out, in]``."""

    def __init__(
        self, attend: nn.Module, weights: dict[str, Tensor], *, num_heads: int, num_kv_heads: int
    ) -> None:
        super().__init__()
        self.attend: Final[Any] = attend
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

    def operands(self, query_hidden: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value."""
        query = self.heads(self.query_projection(query_hidden), self.num_heads)
        key = self.heads(self.key_projection(hidden), self.num_kv_heads)
        return query, key, self.heads(self.value_projection(hidden), self.num_kv_heads)

    def joined(self, output: Tensor) -> Tensor:
        """``[B, H, Sq, Dv]`` through the projection of the output."""
        output = output.transpose(1, 2)
        joined = output.reshape(output.shape[0], output.shape[1], -1)
        made: Tensor = self.output_projection(joined)
        return made[:, None]


class Projected(Layer):
    """query_hidden ``[B, Sq, M]`` and hidden ``[B, Skv, M]`` -> ``[B, 1, Sq, M]``.

    The formulation takes query, key, value and maybe a mask.
    """

    def forward(self, query_hidden: Tensor, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
        query, key, value = self.operands(query_hidden, hidden)
        operands = (query, key, value) if mask is None else (query, key, value, mask)
        return self.joined(self.attend(*operands))


class _AroundCache(Layer):
    """A decode step with a cache; its states become states of the layer."""

    def __init__(self, attend: CacheModule, weights: dict[str, Tensor], **heads: int) -> None:
        super().__init__(attend, weights, **heads)
        self.states: tuple[str, ...] = attend.states
        for name in attend.states:
            self.register_buffer(name, attend.get_buffer(name))
            delattr(attend, name)
        self.key_cache: Tensor
        self.value_cache: Tensor


class ProjectedCache(_AroundCache):
    """query_hidden and hidden ``[B, 1, M]``, position int32 ``[1]`` -> ``[B, 1, 1, M]``."""

    def forward(self, query_hidden: Tensor, hidden: Tensor, position: Tensor) -> Tensor:
        query, key, value = self.operands(query_hidden, hidden)
        self.attend.write(self.key_cache, key, position)
        self.attend.write(self.value_cache, value, position)
        return self.joined(self.attend.attended(query, self.key_cache, self.value_cache, position))


class ProjectedReadOnly(_AroundCache):
    """The past ``[B, Hkv, max_len, D]`` is given, zero from ``position`` on; the token is added."""

    def forward(
        self,
        query_hidden: Tensor,
        hidden: Tensor,
        key_cache: Tensor,
        value_cache: Tensor,
        position: Tensor,
    ) -> Tensor:
        query, key, value = self.operands(query_hidden, hidden)
        hit = self.attend.hit(key, position)
        keys, values = key_cache + hit * key, value_cache + hit * value
        return self.joined(self.attend.attended(query, keys, values, position))


def _linear(weight: Tensor) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    layer.weight = nn.Parameter(weight, requires_grad=False)
    return layer
