"""The attention modules of transformers' DeepSeek-V2 and DeepSeek-V3, given what a kernel is given.

A module takes hidden states; here they carry what the contract gives. The query and latent
projections are selections (exact in every format), the latent's norm is left out, since the
latent given is the normed one, the rotation is by an angle of zero, since the rotary parts given
are rotated, and the output projection is the identity. All tokens but the last q_len go through
the module's cache first.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from equivalence.backends.torch_masking import hidden_keys
from equivalence.errors import Unsupported


def module_of(version: str, sizes: dict[str, int], **facts: Any) -> Any:
    """The module of one layer with these config fields, in eval mode, with random weights.

    V2 attends eagerly (softmax in float32), V3 through SDPA.
    """
    from transformers import DeepseekV2Config, DeepseekV3Config
    from transformers.models.deepseek_v2.modeling_deepseek_v2 import DeepseekV2Attention
    from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Attention

    config_type, module_type = {
        "v2": (DeepseekV2Config, DeepseekV2Attention),
        "v3": (DeepseekV3Config, DeepseekV3Attention),
    }[version]
    config = config_type(
        num_hidden_layers=1, attention_bias=False, attention_dropout=0.0, **sizes, **facts
    )
    config._attn_implementation = {"v2": "eager", "v3": "sdpa"}[version]
    return module_type(config, layer_idx=0).eval()


def angles(version: str, cos: Tensor, sin: Tensor) -> Any:
    """Position embeddings of the module from ``[B, S, dR / 2]`` cosines and sines."""
    if version == "v2":
        return torch.complex(cos.float(), sin.float())
    return torch.cat([cos, cos], dim=-1), torch.cat([sin, sin], dim=-1)


def _planted(version: str, tensors: dict[str, Tensor], scale: float) -> Any:
    """The module whose projections select what the hidden states carry."""
    num_heads, head_dim, latent_dim = tensors["w_uk"].shape
    v_dim, rope_dim = tensors["w_uv"].shape[1], tensors["key_rotary"].shape[-1]
    query_width = num_heads * (head_dim + rope_dim)
    hidden = max(query_width + latent_dim + rope_dim, num_heads * v_dim)
    hidden += -hidden % num_heads  # what the configuration asks for
    module = module_of(
        version,
        {
            "hidden_size": hidden,
            "num_attention_heads": num_heads,
            "num_key_value_heads": num_heads,
            "kv_lora_rank": latent_dim,
            "qk_rope_head_dim": rope_dim,
            "qk_nope_head_dim": head_dim,
            "v_head_dim": v_dim,
        },
        q_lora_rank=None,
    )
    module = module.to(tensors["latent"].dtype)
    eye = torch.eye(hidden, dtype=tensors["latent"].dtype)
    module.q_proj.weight = nn.Parameter(eye[:query_width])
    compressed = slice(query_width, query_width + latent_dim + rope_dim)
    module.kv_a_proj_with_mqa.weight = nn.Parameter(eye[compressed])
    module.kv_a_layernorm = nn.Identity()
    both = torch.cat([tensors["w_uk"], tensors["w_uv"]], dim=1)
    module.kv_b_proj.weight = nn.Parameter(both.reshape(-1, latent_dim))
    module.o_proj.weight = nn.Parameter(eye[:, : num_heads * v_dim])
    default = (head_dim + rope_dim) ** -0.5
    if not math.isclose(module.scaling, default, rel_tol=1e-12):
        raise AssertionError(f"the module scales by {module.scaling}, not by {default}")
    module.scaling = scale
    return module


def run(version: str, tensors: dict[str, Tensor], scale: float | None) -> tuple[Tensor, Any]:
    """The output ``[B, H, Sq, dv]`` and the cache that the module filled."""
    from transformers import DynamicCache

    content, rotary = tensors["query_content"], tensors["query_rotary"]
    batch_size, num_heads, q_len, head_dim = content.shape
    kv_len, v_dim, rope_dim = tensors["latent"].shape[1], tensors["w_uv"].shape[1], rotary.shape[-1]
    if kv_len < q_len:
        raise Unsupported(f"q_len={q_len} needs as many tokens, and kv_len={kv_len}")
    module = _planted(version, tensors, (head_dim + rope_dim) ** -0.5 if scale is None else scale)
    query = torch.cat([content, rotary], dim=-1).transpose(1, 2).flatten(2)
    compressed = torch.cat([tensors["latent"], tensors["key_rotary"]], dim=-1)
    carried = query.new_zeros(batch_size, kv_len, module.hidden_size)
    carried[:, kv_len - q_len :, : query.shape[-1]] = query
    carried[..., query.shape[-1] : query.shape[-1] + compressed.shape[-1]] = compressed

    cos = content.new_ones(batch_size, kv_len, rope_dim // 2)
    sin = torch.zeros_like(cos)
    cache = DynamicCache()
    output = content
    for tokens in (slice(0, kv_len - q_len), slice(kv_len - q_len, kv_len)):
        length = tokens.stop - tokens.start
        if length == 0:
            continue
        hidden = hidden_keys(length, tokens.stop, is_causal=True)
        assert hidden is not None
        mask = content.new_zeros(1, 1, length, tokens.stop).masked_fill(hidden, -torch.inf)
        with torch.no_grad():
            output = module(
                hidden_states=carried[:, tokens],
                position_embeddings=angles(version, cos[:, tokens], sin[:, tokens]),
                attention_mask=mask,
                cache=cache,
            )[0]
    heads = output[..., : num_heads * v_dim].unflatten(-1, (num_heads, v_dim))
    return heads.transpose(1, 2), cache
