"""The head counts of one's own model, read from its Hugging Face ``config.json``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from equivalence.errors import InvalidRequest

NESTED: Final = ("text_config", "llm_config", "language_config")
MOST: Final = 1 << 16


def head_layouts_like(path: Path) -> tuple[tuple[int, int, int], ...]:
    """The (num_kv_heads, group_size, head_dim) triples of the model that ``path`` describes.

    Reads num_attention_heads, num_key_value_heads (default: as many), head_dim (default:
    hidden_size / num_attention_heads), in the text part of a multimodal model; GPT-2's n_head and
    n_embd, and Falcon's multi_query, count too. Raises InvalidRequest, naming the field, for a
    config that contradicts itself.
    """
    config = _text_part(_read(path), path)
    heads = _whole(config, path, "num_attention_heads", "n_head", "num_heads", "n_heads")
    if heads is None:
        raise _refusal(path, "it has no num_attention_heads, so it describes no attention")
    kv_heads = _whole(config, path, "num_key_value_heads", "num_kv_heads", "n_head_kv")
    if kv_heads is None:
        kv_heads = 1 if config.get("multi_query") is True else heads
    if heads % kv_heads:
        raise _refusal(
            path,
            f"num_attention_heads={heads} must be a multiple of num_key_value_heads={kv_heads}",
        )
    head_dim = _whole(config, path, "head_dim")
    if head_dim is None:
        hidden = _whole(config, path, "hidden_size", "n_embd", "d_model")
        if hidden is None:
            raise _refusal(path, "it has neither head_dim nor hidden_size")
        if hidden % heads:
            raise _refusal(
                path,
                f"hidden_size={hidden} must be a multiple of num_attention_heads={heads} "
                "where head_dim is not given",
            )
        head_dim = hidden // heads
    return ((kv_heads, heads // kv_heads, head_dim),)


def _read(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _refusal(path, (error.strerror or type(error).__name__).lower()) from None
    except (ValueError, RecursionError) as error:
        raise _refusal(path, f"it is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise _refusal(path, f"it holds a {type(config).__name__}, not an object")
    return config


def _text_part(config: dict[str, Any], path: Path) -> dict[str, Any]:
    for name in NESTED:
        if name in config:
            part = config[name]
            if not isinstance(part, dict):
                raise _refusal(path, f"{name} is a {type(part).__name__}, not an object")
            return {**config, **part}
    return config


def _whole(config: dict[str, Any], path: Path, *names: str) -> int | None:
    """The first of ``names`` that the config gives, a whole number from 1 to 65,536."""
    for name in names:
        value = config.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
            raise _refusal(path, f"{name}={value!r} must be a whole number from 1 to {MOST:,}")
        return value
    return None


def _refusal(path: Path, why: str) -> InvalidRequest:
    return InvalidRequest(f"--like {path}: {why}")
