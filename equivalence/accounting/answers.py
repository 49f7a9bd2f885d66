"""One question asked of several models: bytes at a context, and how many sequences fit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from equivalence.accounting.configs import kv_spec_from_config
from equivalence.accounting.devices import on_one_device, replication, sequences_that_fit
from equivalence.accounting.models import named_spec
from equivalence.accounting.spec import KVSpec
from equivalence.accounting.storage import FLOAT16, Storage
from equivalence.errors import require


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked of each model.

    tokens: of a sequence. encoder_tokens: what cross-attention keeps, None for the config's own.
    memory_bytes, weights_bytes: of one device, memory None where nothing need fit; share: how
    much of the memory is used. tensor_parallel: devices that share the heads out.
    """

    storage: Storage = FLOAT16
    tokens: int = 4096
    encoder_tokens: int | None = None
    page_size: int = 1
    tensor_parallel: int = 1
    memory_bytes: float | None = None
    weights_bytes: float = 0.0
    share: float = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one model keeps. All bytes are those of one device.

    bytes_per_token: with every layer at full length. sequence_bytes: of a whole sequence, with
    windows and pages. fits: sequences that fit, None where no memory was given. replication: how
    many times the devices together keep what one alone would.
    """

    spec: KVSpec
    bytes_per_token: int
    sequence_bytes: int
    tokens: int
    fits: int | None
    replication: float

    @property
    def held_per_token(self) -> float:
        """sequence_bytes / tokens: what a token costs at this context."""
        return self.sequence_bytes / self.tokens

    def facts(self) -> dict[str, Any]:
        """The answer as plain numbers and text."""
        return {
            "model": self.spec.name,
            "family": self.spec.family,
            "num_layers": self.spec.num_layers,
            "num_heads": self.spec.num_heads,
            "max_tokens": self.spec.max_tokens,
            "elements_per_token": self.spec.elements_per_token,
            "bytes_per_token": self.bytes_per_token,
            "smaller_than_mha": self.spec.saving,
            "tokens": self.tokens,
            "sequence_bytes": self.sequence_bytes,
            "held_bytes_per_token": self.held_per_token,
            "sequences_that_fit": self.fits,
            "replication": self.replication,
            "layers": layer_facts(self.spec),
            "notes": list(self.spec.notes),
        }


def spec_of(text: str) -> KVSpec:
    """The spec of a config.json, of a folder that holds one, or of a known model's name."""
    path = Path(text).expanduser()
    if path.exists() or path.suffix == ".json":
        return kv_spec_from_config(path, origin=text, name=text)
    return named_spec(text)


def answer(spec: KVSpec, question: Question) -> Answer:
    """What ``spec`` keeps under ``question``; raises InvalidRequest where it makes no sense."""
    for name in ("tokens", "page_size"):
        value = getattr(question, name)
        require(value >= 1, f"{name}={value} must be at least 1")
    encoder = question.encoder_tokens
    require(encoder is None or encoder >= 0, f"encoder_tokens={encoder} must be at least 0")
    device = on_one_device(spec, question.tensor_parallel)
    layout: dict[str, Any] = {
        "storage": question.storage,
        "encoder_tokens": encoder,
        "page_size": question.page_size,
    }
    fits = None
    if question.memory_bytes is not None:
        fits = sequences_that_fit(
            device,
            memory_bytes=question.memory_bytes,
            weights_bytes=question.weights_bytes,
            tokens=question.tokens,
            share=question.share,
            **layout,
        )
    return Answer(
        spec=spec,
        bytes_per_token=device.bytes_per_token(question.storage),
        sequence_bytes=device.bytes(question.tokens, **layout),
        tokens=question.tokens,
        fits=fits,
        replication=replication(spec, question.tensor_parallel),
    )


def layer_facts(spec: KVSpec) -> list[dict[str, Any]]:
    """The layers as runs of equal ones."""
    runs: list[dict[str, Any]] = []
    previous = None
    for layer in spec.layers:
        if layer == previous:
            runs[-1]["layers"] += 1
            continue
        previous = layer
        runs.append(
            {
                "layers": 1,
                "attends": layer.attends,
                "window": layer.window,
                "elements_per_token": layer.elements_per_token,
                "keeps": [
                    {"name": kept.name, "count": kept.count, "width": kept.width}
                    for kept in layer.kept
                ],
            }
        )
    return runs
