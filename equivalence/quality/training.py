"""Train a model for some steps, and score it in bits per token."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from equivalence.quality.corpus import Corpus
from equivalence.quality.gpt2 import Gpt2


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a model is trained: AdamW, a tenth of the steps to warm up, then a cosine to a tenth.

    score_tokens: of calibration and of test that each score reads, from the start of the part.
    """

    steps: int
    learning_rate: float
    batch_size: int = 8
    tokens: int = 96
    scores: int = 5
    score_tokens: int = 12_288


@dataclass(slots=True, kw_only=True)
class Curve:
    """Bits per token after so many steps; train is the mean of the steps since the last score."""

    steps: list[int] = field(default_factory=list)
    train: list[float | None] = field(default_factory=list)
    calibration: list[float] = field(default_factory=list)
    test: list[float] = field(default_factory=list)

    @property
    def best(self) -> int:
        """Where calibration is best; the test part chooses nothing."""
        return min(range(len(self.steps)), key=self.calibration.__getitem__)

    @property
    def untrained_bits(self) -> float:
        """Test bits before the first step."""
        return self.test[0]

    @property
    def bits(self) -> float:
        """Test bits at the best calibration step."""
        return self.test[self.best]

    def facts(self) -> dict[str, list[Any]]:
        """The curve as plain lists."""
        return {
            "steps": self.steps,
            "train": self.train,
            "calibration": self.calibration,
            "test": self.test,
        }


def bits_per_token(model: Gpt2, tokens: Tensor, recipe: Recipe) -> float:
    """The mean of -log2 p(next token), over windows that do not overlap."""
    width = min(recipe.tokens, model.shape.max_tokens)
    count = min(len(tokens), recipe.score_tokens) - 1
    windows = max(1, count // width)
    total, seen = 0.0, 0
    with torch.no_grad():
        for first in range(0, windows, 16):
            starts = [i * width for i in range(first, min(first + 16, windows))]
            batch = torch.stack([tokens[s : s + width + 1] for s in starts]).long()
            loss = loss_of(model, batch, reduction="sum")
            total += loss.item()
            seen += batch[:, 1:].numel()
    return total / seen / math.log(2)


def loss_of(model: Gpt2, batch: Tensor, reduction: str = "mean") -> Tensor:
    """Cross-entropy in nats of batch[:, 1:] after batch[:, :-1]."""
    device = model.wte.weight.device
    batch = batch.to(device)
    logits = model(batch[:, :-1])
    return functional.cross_entropy(
        logits.flatten(0, 1).float(), batch[:, 1:].flatten(), reduction=reduction
    )


def train(
    model: Gpt2,
    corpus: Corpus,
    recipe: Recipe,
    *,
    seed: int,
    checkpoint: Path | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Curve:
    """Train ``model`` in place; the same seed draws the same batches for any model.

    With a checkpoint, each score saves all that is needed to go on, and a file that is there is
    gone on from.
    """
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=recipe.learning_rate, betas=(0.9, 0.95), weight_decay=0.01
    )
    curve = Curve()
    done = 0
    if checkpoint is not None and checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        curve = Curve(**saved["curve"])
        done = curve.steps[-1]
    losses: list[float] = []
    every = max(1, -(-recipe.steps // recipe.scores))
    for step, batch in enumerate(_batches(corpus.train, recipe, model.shape.max_tokens, seed)):
        due = step % every == 0 or step == recipe.steps
        if due and (not curve.steps or step > curve.steps[-1]):
            _score(model, corpus, recipe, step, losses, curve)
            losses = []
            if checkpoint is not None:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                _save({**state, "curve": curve.facts()}, checkpoint)
        if step == recipe.steps:
            break
        if step < done:  # drawn once more, so that what follows is drawn as it would have been
            continue
        for group in optimizer.param_groups:
            group["lr"] = recipe.learning_rate * _warmth(step, recipe.steps)
        loss = loss_of(model, batch)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item() / math.log(2))
        progress(step + 1, recipe.steps)
    return curve


def _score(
    model: Gpt2, corpus: Corpus, recipe: Recipe, step: int, losses: list[float], curve: Curve
) -> None:
    curve.steps.append(step)
    curve.train.append(sum(losses) / len(losses) if losses else None)
    curve.calibration.append(bits_per_token(model, corpus.calibration, recipe))
    curve.test.append(bits_per_token(model, corpus.test, recipe))


def _warmth(step: int, steps: int) -> float:
    warm = max(1, steps // 10)
    if step < warm:
        return (step + 1) / warm
    share = (step - warm) / max(1, steps - warm)
    return 0.1 + 0.45 * (1 + math.cos(math.pi * share))


def _batches(tokens: Tensor, recipe: Recipe, most: int, seed: int) -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    width = min(recipe.tokens, most)
    while True:
        starts = torch.randint(0, len(tokens) - width, (recipe.batch_size,), generator=generator)
        yield torch.stack([tokens[s : s + width + 1] for s in starts.tolist()]).long()


def _save(state: dict[str, Any], path: Path) -> None:
    unfinished = path.with_suffix(".part")
    torch.save(state, unfinished)
    os.replace(unfinished, path)
