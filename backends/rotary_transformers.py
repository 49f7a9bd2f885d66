"""The rotary embeddings of transformers: Llama's, DeepSeek-V3's and GPT-NeoX's own functions.

transformers is imported at the first call. Dynamic scaling keeps the frequencies of the longest
context that it has seen, so each call of that type has a copy of an embedding that saw none.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from equivalence.backends.rotary_tables import require_sizes
from equivalence.declaration import rotary as declare
from equivalence.errors import Unsupported

FORMATS = ("float64", "float32", "float16", "bfloat16")
FIXED = ("default", "linear", "yarn", "llama3", "longrope")
Scaling = Mapping[str, Any] | None


@declare(dtypes=FORMATS, profile="eager", pairing="half", deterministic=True)
def llama(
    x: Tensor, positions: Tensor, *, theta: float = 10_000.0, scaling: Scaling = None
) -> Tensor:
    """``LlamaRotaryEmbedding`` and ``apply_rotary_pos_emb`` on a query and a key at once."""
    modeling = import_module("transformers.models.llama.modeling_llama")
    cos, sin = _tables("llama", x, positions, theta, scaling, x.shape[-1])
    query, key = modeling.apply_rotary_pos_emb(x, x, cos, sin)
    return _both(query, key)


@declare(dtypes=FORMATS, profile="eager", pairing="half", deterministic=True)
def gpt_neox(
    x: Tensor,
    positions: Tensor,
    *,
    theta: float = 10_000.0,
    rotary_dim: int | None = None,
    scaling: Scaling = None,
) -> Tensor:
    """``GPTNeoXRotaryEmbedding``, which turns only the first ``rotary_dim`` channels."""
    modeling = import_module("transformers.models.gpt_neox.modeling_gpt_neox")
    turning = x.shape[-1] if rotary_dim is None else rotary_dim
    cos, sin = _tables("gpt_neox", x, positions, theta, scaling, turning)
    query, key = modeling.apply_rotary_pos_emb(x, x, cos, sin)
    return _both(query, key)


@declare(dtypes=FORMATS, profile="eager", pairing="interleaved", deterministic=True)
def deepseek_v3(
    x: Tensor, positions: Tensor, *, theta: float = 10_000.0, scaling: Scaling = None
) -> Tensor:
    """DeepSeek-V3's rotation with ``rope_interleave``.

    It turns neighbouring channels and leaves them in half order, query and key alike; here they
    are put back, so that the result can be compared channel by channel.
    """
    modeling = import_module("transformers.models.deepseek_v3.modeling_deepseek_v3")
    cos, sin = _tables("deepseek_v3", x, positions, theta, scaling, x.shape[-1])
    query, key = modeling.apply_rotary_pos_emb_interleave(x, x, cos, sin)
    in_half_order = _both(query, key)
    return torch.stack(in_half_order.chunk(2, dim=-1), dim=-1).flatten(-2)


def _both(query: Tensor, key: Tensor) -> Tensor:
    if not torch.equal(query.nan_to_num(), key.nan_to_num()):
        raise AssertionError("the same tensor was turned differently as query and as key")
    return query


def _tables(
    model: str, x: Tensor, positions: Tensor, theta: float, scaling: Scaling, rotary_dim: int
) -> tuple[Tensor, Tensor]:
    """cos and sin ``[B, S, rotary_dim]`` in the dtype of x, from the model's own module."""
    require_sizes(x, positions, rotary_dim)
    parameters = dict(scaling or {"rope_type": "default"})
    rope_type = parameters.get("rope_type", "default")
    if rope_type not in (*FIXED, "dynamic"):
        raise Unsupported(f"rope_type={rope_type!r}")
    words = json.dumps({**parameters, "rope_theta": theta}, sort_keys=True)
    embedding = _embedding(model, words, int(x.shape[-1]), rotary_dim)
    if rope_type not in FIXED:
        config = embedding.config
        embedding = copy.deepcopy(embedding, {id(config): config})
    by_row = positions if positions.ndim == 2 else positions[None].expand(x.shape[0], -1)
    tables: tuple[Tensor, Tensor] = embedding(x, by_row)
    return tables


@lru_cache(maxsize=256)
def _embedding(model: str, words: str, head_dim: int, rotary_dim: int) -> Any:
    """The model's rotary module for these rope parameters (JSON)."""
    parameters = json.loads(words)
    original = parameters.get("original_max_position_embeddings", 2048)
    longest = original
    if parameters["rope_type"] == "dynamic":  # the config has it there
        parameters.pop("original_max_position_embeddings")
    elif parameters["rope_type"] == "llama3":  # read by a check only, which then says nothing
        longest = 2 * original
    sizes: dict[str, Any] = {"hidden_size": head_dim, "num_attention_heads": 1}
    if model == "gpt_neox":
        # int(head_dim * share) must be rotary_dim, whatever the rounding
        parameters["partial_rotary_factor"] = (rotary_dim + 0.5) / head_dim
        if rotary_dim == head_dim:
            parameters["partial_rotary_factor"] = 1.0
    elif model == "llama":
        sizes["head_dim"] = head_dim
    else:
        sizes["qk_rope_head_dim"] = head_dim
    name = {"llama": "Llama", "gpt_neox": "GPTNeoX", "deepseek_v3": "DeepseekV3"}[model]
    place = f"transformers.models.{model}"
    config = getattr(import_module(f"{place}.configuration_{model}"), f"{name}Config")(
        max_position_embeddings=longest, rope_parameters=parameters, **sizes
    )
    module = getattr(import_module(f"{place}.modeling_{model}"), f"{name}RotaryEmbedding")
    return module(config)
