"""Convert a model to fewer key/value heads, train each a while, and compare with a control."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from equivalence.errors import InvalidRequest, require
from equivalence.pooling import Method, pool_state_dict
from equivalence.quality.corpus import Corpus
from equivalence.quality.gpt2 import Gpt2, Shape, from_weights
from equivalence.quality.training import Curve, Recipe, train

TINY = Shape(num_layers=3, num_heads=12, num_kv_heads=12, head_dim=8, vocabulary=256, max_tokens=96)
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is run.

    kv_heads: the key/value heads to convert to; the full number is the control, and is run in any
    case. pretraining: how the tiny model is made, None where weights are given. uptraining: what
    every converted model and the control get, with the same batches for the same seed.
    """

    shape: Shape = TINY
    kv_heads: tuple[int, ...] = (12, 6, 4, 3, 2, 1)
    seeds: tuple[int, ...] = (0, 1, 2)
    method: Method = "mean"
    pretraining: Recipe | None = None
    uptraining: Recipe = field(default_factory=lambda: Recipe(steps=150, learning_rate=1e-3))
    device: str = "cpu"

    @property
    def counts(self) -> tuple[int, ...]:
        """All key/value heads that are run, the control first."""
        return tuple(sorted({self.shape.num_heads, *self.kv_heads}, reverse=True))


@dataclass(slots=True, kw_only=True)
class Study:
    """The curves of a plan: of the tiny model by seed, and of each model by (kv heads, seed)."""

    plan: Plan
    corpus: Corpus
    pretraining: dict[int, Curve] = field(default_factory=dict)
    curves: dict[tuple[int, int], Curve] = field(default_factory=dict)

    def of(self, kv_heads: int) -> list[Curve]:
        """The curves of one number of key/value heads, by seed."""
        return [self.curves[kv_heads, seed] for seed in self.plan.seeds]


def run(
    plan: Plan,
    corpus: Corpus,
    *,
    weights: Mapping[str, Tensor] | None = None,
    checkpoints: Path | None = None,
    progress: Progress = lambda stage, done, total: None,
) -> Study:
    """Run the plan; with a folder of checkpoints, go on from what it holds.

    ``weights`` are those of a multi-head GPT-2; without them a model is trained for each seed.
    """
    for count in plan.counts:
        plan.shape.grouped(count)  # refused before anything is trained
    if checkpoints is not None:
        _claim(checkpoints, plan, corpus, weights)
    study = Study(plan=plan, corpus=corpus)
    for seed in plan.seeds:
        base = weights if weights is not None else _pretrained(study, seed, checkpoints, progress)
        for count in plan.counts:
            state = pool_state_dict(
                base, num_heads=plan.shape.num_heads, num_kv_heads=count, method=plan.method,
                seed=seed,
            ) if count != plan.shape.num_heads else base  # fmt: skip
            model = from_weights(state, plan.shape.grouped(count)).to(plan.device)
            stage = f"seed {seed}, {count} kv heads"
            study.curves[count, seed] = train(
                model,
                corpus,
                plan.uptraining,
                seed=seed,
                checkpoint=_file(checkpoints, f"seed-{seed}-kv-{count}.pt"),
                progress=lambda done, total, stage=stage: progress(stage, done, total),  # type: ignore[misc]
            )
    return study


def _pretrained(
    study: Study, seed: int, checkpoints: Path | None, progress: Progress
) -> dict[str, Tensor]:
    recipe = study.plan.pretraining
    require(recipe is not None, "there are neither weights nor a recipe to train them")
    assert recipe is not None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Gpt2(study.plan.shape).to(study.plan.device)
    study.pretraining[seed] = train(
        model,
        study.corpus,
        recipe,
        seed=10_000 + seed,  # other batches than uptraining draws
        checkpoint=_file(checkpoints, f"seed-{seed}-base.pt"),
        progress=lambda done, total: progress(f"seed {seed}, the model itself", done, total),
    )
    return {name: weight.detach().cpu() for name, weight in model.state_dict().items()}


def _file(folder: Path | None, name: str) -> Path | None:
    return None if folder is None else folder / name


def _claim(folder: Path, plan: Plan, corpus: Corpus, weights: Mapping[str, Tensor] | None) -> None:
    """Write down what the folder is for, or refuse one that is for something else."""
    given = 0.0 if weights is None else sum(w.double().abs().sum().item() for w in weights.values())
    # Which numbers of heads are run may change from one run to the next: each has its own file.
    asked = asdict(replace(plan, kv_heads=(), seeds=()))
    text = json.dumps({"plan": asked, "corpus": corpus.digest, "weights": given}, indent=1)
    path = folder / "plan.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            unfinished = folder / "plan.part"
            unfinished.write_text(text, encoding="utf-8")
            os.replace(unfinished, path)
        held = path.read_text(encoding="utf-8")
    except OSError as error:
        why = (error.strerror or type(error).__name__).lower()
        raise InvalidRequest(f"--checkpoints {folder} cannot be used: {why}") from None
    if held != text:
        raise InvalidRequest(
            f"--checkpoints {folder} holds another run ({path} says which); name a new folder"
        )


def chosen_seeds(count: int) -> tuple[int, ...]:
    """The first ``count`` seeds."""
    return tuple(range(count))
