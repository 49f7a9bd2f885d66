"""Head layouts of published models: head counts and sizes only, from their config.json files."""

from __future__ import annotations

from typing import Final

# name: (num_kv_heads, group_size, head_dim)
MODEL_HEADS: Final[dict[str, tuple[int, int, int]]] = {
    "GPT-2": (12, 1, 64),
    "TinyLlama": (4, 8, 64),
    "Llama-3.2-1B": (8, 4, 64),
    "EXAONE-4.0-1.2B": (8, 4, 64),
    "Phi-3-mini": (32, 1, 96),
    "Qwen3-1.7B": (8, 2, 128),
    "Llama-3.2-3B": (8, 3, 128),
    "Llama-3.1-8B": (8, 4, 128),
    "Mistral-7B": (8, 4, 128),
    "Gemma-2-2B": (4, 2, 256),
    "Falcon-7B": (1, 71, 64),
}
