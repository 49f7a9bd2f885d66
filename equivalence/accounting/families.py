"""What a family of models assumes where its config says nothing: the defaults of transformers.

Only what changes the size of a cache is here; tests compare it with transformers' own classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

# Fields that published configs of the family leave out.
FALLBACKS: Final[Mapping[str, Mapping[str, Any]]] = {
    "cohere2": {"sliding_window": 4096, "sliding_window_pattern": 4},
    "exaone4": {"sliding_window_pattern": 4, "sliding_window": 4096},
    "falcon": {"multi_query": True, "new_decoder_architecture": False},
    "gemma": {"head_dim": 256, "num_key_value_heads": 16},
    "gemma2": {"head_dim": 256, "sliding_window": 4096, "sliding_window_pattern": 2},
    "gemma3_text": {"head_dim": 256, "sliding_window": 4096, "sliding_window_pattern": 6},
    "gpt_bigcode": {"multi_query": True},
    "gpt_oss": {"head_dim": 64, "sliding_window": 128, "sliding_window_pattern": 2},
    "llama4_text": {"head_dim": 128, "attention_chunk_size": 8192, "no_rope_layer_interval": 4},
    "mistral": {"sliding_window": 4096, "num_key_value_heads": 8},
    "mixtral": {"num_key_value_heads": 8},
    "qwen2": {"sliding_window": 4096, "use_sliding_window": False, "max_window_layers": 28},
    "qwen2_moe": {"sliding_window": 4096, "use_sliding_window": False, "max_window_layers": 28},
    "qwen3": {
        "head_dim": 128, "sliding_window": 4096, "use_sliding_window": False,
        "max_window_layers": 28,
    },
    "qwen3_moe": {"sliding_window": 4096, "use_sliding_window": False},
    "qwen3_next": {"head_dim": 256, "full_attention_interval": 4},
    "t5": {"d_kv": 64, "num_heads": 8, "num_layers": 6},
}  # fmt: skip

# The sizes themselves, which only the text part of a multimodal config may leave out.
SIZES: Final[Mapping[str, Mapping[str, int]]] = {
    "gemma2": {
        "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4,
        "hidden_size": 2304,
    },
    "gemma3_text": {
        "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4,
        "hidden_size": 2304,
    },
    "llama": {"num_hidden_layers": 32, "num_attention_heads": 32, "hidden_size": 4096},
    "mistral": {"num_hidden_layers": 32, "num_attention_heads": 32, "hidden_size": 4096},
    "qwen2": {
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
        "hidden_size": 4096,
    },
}  # fmt: skip

FALCONS: Final = frozenset(("falcon", "RefinedWeb", "RefinedWebModel"))
# Families whose attention keeps a latent, so a config without one is not whole.
LATENTS: Final = frozenset(("deepseek_v2", "deepseek_v3", "deepseek_v32", "minicpm3"))
# Encoders, which compute all tokens at once and keep nothing.
ENCODERS: Final = frozenset(
    (
        "albert", "bert", "camembert", "clip", "clip_text_model", "clip_vision_model", "deberta",
        "deberta-v2", "deit", "dinov2", "distilbert", "electra", "esm", "hubert", "modernbert",
        "mpnet", "roberta", "siglip", "siglip_vision_model", "vit", "wav2vec2", "xlm-roberta",
    )
)  # fmt: skip
# State-space models, which keep a state of fixed size.
STATES: Final = frozenset(("falcon_mamba", "mamba", "mamba2", "rwkv", "xlstm"))
# Families with more than one attention in what the config calls a layer.
ATTENTIONS_PER_LAYER: Final = {"longcat_flash": 2}
# Fields that change what is kept in a way that nothing here reads.
UNREAD: Final = (
    "compress_ratios",
    "hybrid_override_pattern",
    "linear_attn_config",
    "recurrent_kv_cache_mode",
    "ssm_cfg",
    "swa_num_key_value_heads",
)
UNREAD_FAMILIES: Final = frozenset(("mimo_v2_flash",))
