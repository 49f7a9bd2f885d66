"""The head layout that a Hugging Face config describes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from equivalence.like import head_layouts_like

CONFIGS = {
    "llama-3.2-1b": (
        {"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "hidden_size": 2048},
        (8, 4, 64),
    ),
    "phi-3-mini": (
        {"num_attention_heads": 32, "num_key_value_heads": 32, "hidden_size": 3072},
        (32, 1, 96),
    ),
    "no key_value heads": ({"num_attention_heads": 12, "hidden_size": 768}, (12, 1, 64)),
    "null key_value heads": (
        {"num_attention_heads": 12, "num_key_value_heads": None, "hidden_size": 768},
        (12, 1, 64),
    ),
    "gpt-2": ({"n_head": 12, "n_embd": 768}, (12, 1, 64)),
    "falcon-7b": (
        {"num_attention_heads": 71, "multi_query": True, "hidden_size": 4544},
        (1, 71, 64),
    ),
    "head_dim is not hidden / heads": (
        {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "hidden_size": 2304},
        (4, 2, 256),
    ),
    "multimodal": (
        {
            "hidden_size": 7,
            "text_config": {
                "num_attention_heads": 16, "num_key_value_heads": 2, "hidden_size": 2048,
            },
        },
        (2, 8, 128),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("config", "layout"), CONFIGS.values(), ids=CONFIGS.keys())
def test_reads_the_layout(
    config: dict[str, object], layout: tuple[int, int, int], tmp_path: Path
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    assert head_layouts_like(path) == (layout,)
