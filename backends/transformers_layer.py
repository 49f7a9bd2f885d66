"""Llama's layer of transformers as a bare attention function, by the name in its registry.

The projections of the layer are slices and its rotation is by angle zero, so that queries, keys
and values reach the registry's function as they are given, older keys through a DynamicCache.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache, LlamaConfig
from transformers.masking_utils import create_causal_mask
from transformers.models.llama.modeling_llama import LlamaAttention

from equivalence.backends.head_folding import group_size_of
from equivalence.backends.torch_sdpa_gqa import choice_supports
from equivalence.case import AttentionCase
from equivalence.errors import Unsupported


class _Slice(nn.Module):
    def __init__(self, start: int, stop: int) -> None:
        super().__init__()
        self.start, self.stop = start, stop

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden[..., self.start : self.stop]


@lru_cache(maxsize=256)
def _layer(name: str, num_heads: int, num_kv_heads: int, head_dim: int) -> Any:
    """``LlamaAttention`` of these sizes over ``[query | key | value]`` as its hidden states."""
    config = LlamaConfig(
        hidden_size=num_heads * head_dim,
        num_attention_heads=num_heads,
        num_key_value_heads=num_kv_heads,
        head_dim=head_dim + head_dim % 2,  # the rotation, by angle zero, wants pairs
        num_hidden_layers=1,
    )
    config._attn_implementation = name
    layer: Any = LlamaAttention(config, layer_idx=0).eval()
    edges = [0, num_heads * head_dim]
    edges += [edges[1] + n * num_kv_heads * head_dim for n in (1, 2)]
    layer.q_proj, layer.k_proj, layer.v_proj = (_Slice(*ends) for ends in pairwise(edges))
    layer.o_proj = nn.Identity()
    layer.head_dim = head_dim
    return layer


def supports(case: AttentionCase) -> bool | str:
    """True, or why not."""
    if case.v_dim != case.head_dim:
        return f"value_head_dim={case.v_dim} differs from head_dim={case.head_dim}"
    if case.q_len > case.kv_len:
        return f"q_len={case.q_len} exceeds kv_len={case.kv_len}: new tokens bring their own keys"
    return choice_supports(case)


def attend(
    name: str,
    operands: tuple[Tensor, Tensor, Tensor],
    mask: Tensor | None,
    causal: bool,
    scale: float | None,
    **more: Any,
) -> Tensor:
    """query, key and value -> ``[B, H, Sq, D]``; more goes to the registry's function."""
    query, key, value = operands
    batch_size, num_heads, q_len, head_dim = query.shape
    num_kv_heads, kv_len = key.shape[1:3]
    group_size_of(num_heads, num_kv_heads)
    if value.shape[-1] != head_dim or q_len > kv_len:
        raise Unsupported(f"value_head_dim={value.shape[-1]}, q_len={q_len}, kv_len={kv_len}")
    if causal and mask is not None:
        raise Unsupported("a mask of rank 4 takes the place of the causal one")
    layer = _layer(name, num_heads, num_kv_heads, head_dim)
    layer.scaling = head_dim**-0.5 if scale is None else scale
    past, cache = kv_len - q_len, DynamicCache(config=layer.config)
    if past:
        cache.update(key[:, :, :past], value[:, :, :past], 0)
    new = (query, key[:, :, past:], value[:, :, past:])
    hidden = torch.cat([x.transpose(1, 2).flatten(2) for x in new], dim=-1)
    if causal:
        mask = create_causal_mask(layer.config, hidden, None, cache)
        more["is_causal"] = True
    elif mask is not None and mask.dtype == torch.bool and name == "eager":
        # as transformers' own eager_mask makes them
        mask = torch.where(mask, torch.zeros((), dtype=query.dtype), torch.finfo(query.dtype).min)
    angle = torch.zeros(batch_size, q_len, head_dim, dtype=query.dtype)
    options = {"is_causal": False, **more}
    output: Tensor = layer(hidden, (angle + 1, angle), mask, cache=cache, **options)[0]
    by_head: Tensor = output.unflatten(-1, (num_heads, head_dim))
    return by_head.transpose(1, 2)
