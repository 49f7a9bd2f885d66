"""Hugging Face transformers' ``QuantizedCache`` with 8-bit numbers of HQQ, as a client.

Groups of 64 channels along axis 1 lie within one token and head where head_dim is a multiple of
64: their steps are as fine as ``quantised="int8"`` promises. transformers restores all tokens and
quantises them anew every ``residual_length`` tokens. In float32 that gives the same numbers back;
in 16 bit the steps are rounded each time, and the error grows with the context.
"""

from __future__ import annotations

import copy
from typing import Any, Self

import torch
from torch import Tensor

from equivalence.backends.transformers_cache_layers import LayerOf
from equivalence.declaration import kv_cache as declare

GROUP = 64
RESIDUAL = 4  # tokens in full precision; transformers' own default of 128 would be all of them


class HqqLayer(LayerOf):
    """A quantised layer: its ``update`` hands back all tokens, restored."""

    def reorder(self, batch_index: Tensor) -> None:
        """``reorder_cache``, which moves quantised tokens at the next update."""
        if self.length:
            self.cache.reorder_cache(batch_index)
            self.key, self.value = self.key[batch_index], self.value[batch_index]

    def fork(self) -> Self:
        """A deep copy."""
        return copy.deepcopy(self)

    @property
    def nbytes(self) -> int:
        """The bytes of numbers, scales and zeros, and of the tokens that wait."""
        layer = self.cache.layers[0]
        if not self.length:
            return 0
        held = [layer.keys, layer.values]
        for numbers, about in (layer._quantized_keys, layer._quantized_values):
            held += [numbers, about["scale"], about["zero"]]
        return sum(int(part.nbytes) for part in held)


@declare(
    dtypes=("float32",),
    head_dims=(GROUP, 2 * GROUP, 4 * GROUP),
    profile="f32",
    quantised="int8",
    grouped=True,
)
def cache(
    *, batch_size: int, num_kv_heads: int, head_dim: int, max_len: int, dtype: torch.dtype
) -> HqqLayer:
    """``QuantizedCache("hqq", nbits=8)`` of one layer."""
    from transformers import PretrainedConfig, QuantizedCache

    config: Any = PretrainedConfig()
    config.num_hidden_layers = 1
    made = QuantizedCache(
        "hqq",
        config,
        nbits=8,
        axis_key=1,
        axis_value=1,
        q_group_size=GROUP,
        residual_length=RESIDUAL,
    )
    return HqqLayer(made, max_len, (batch_size, num_kv_heads, head_dim), dtype=dtype)
