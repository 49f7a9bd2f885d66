"""A local GPT-2 directory: its sizes, its weights and its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from equivalence.accounting.fields import fields_of
from equivalence.errors import InvalidRequest
from equivalence.quality.corpus import Encode, encode_bytes
from equivalence.quality.gpt2 import Shape


def shape_of(folder: Path) -> Shape:
    """The sizes in ``config.json``; a model that is not GPT-2 is refused."""
    origin = f"--model {folder}"
    fields = fields_of(folder, origin=origin)
    if fields.family != "gpt2":
        raise InvalidRequest(f"{origin}: model_type={fields.family or '(none)'} is not gpt2")
    sizes = {
        name: fields.whole(*names, most=1 << 20)
        for name, names in {
            "num_layers": ("n_layer", "num_hidden_layers"),
            "num_heads": ("n_head", "num_attention_heads"),
            "width": ("n_embd", "hidden_size"),
            "vocabulary": ("vocab_size",),
            "max_tokens": ("n_positions", "max_position_embeddings"),
        }.items()
    }
    layers, heads, width, vocabulary, tokens = (size or 0 for size in sizes.values())
    missing = [name for name, size in sizes.items() if size is None]
    if missing:
        raise InvalidRequest(f"{origin}: its config does not say {missing[0]}")
    if width % heads:
        raise InvalidRequest(f"{origin}: n_embd={width} must be a multiple of n_head={heads}")
    return Shape(
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=width // heads,
        vocabulary=vocabulary,
        max_tokens=tokens,
    )


def weights_of(folder: Path) -> dict[str, Tensor]:
    """The weights in float32, from model.safetensors or pytorch_model.bin (never unpickled)."""
    import torch

    whole, binary = folder / "model.safetensors", folder / "pytorch_model.bin"
    if whole.is_file():
        try:
            from safetensors.torch import load_file
        except ImportError:
            raise InvalidRequest(f"--model {folder} needs safetensors: pip install it") from None
        state = load_file(whole)
    elif binary.is_file():
        state = torch.load(binary, weights_only=True, map_location="cpu")
    else:
        raise InvalidRequest(f"--model {folder}: no model.safetensors or pytorch_model.bin")
    return {name: weight.float() for name, weight in state.items()}


def encoder_of(folder: Path, vocabulary: int) -> tuple[Encode, str]:
    """The folder's own tokens, or bytes where it has no tokenizer; and what they are called."""
    if not (folder / "tokenizer.json").is_file() and not (folder / "vocab.json").is_file():
        if vocabulary < 256:
            raise InvalidRequest(
                f"--model {folder}: without a tokenizer bytes are used, and vocab_size="
                f"{vocabulary} is below 256"
            )
        return encode_bytes, "bytes, since the folder has no tokenizer"
    try:
        from transformers import AutoTokenizer
    except ImportError:
        raise InvalidRequest(
            f"--model {folder} has a tokenizer, which needs transformers: "
            "pip install 'attention-equivalence[transformers]'"
        ) from None
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)

    def encode(text: str) -> Sequence[int]:
        ids: list[int] = tokenizer(text, verbose=False)["input_ids"]
        return ids

    return encode, "the folder's own tokens"
