"""What `equivalence quality` does once its options are parsed."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from equivalence.cli.counting import whole_numbers
from equivalence.cli.destination import (
    require_folder,
    require_writable,
    stdout_kept_for,
    write_whole,
)
from equivalence.cli.exits import BROKEN, HELD
from equivalence.cli.validation import above_zero, at_least, one_of
from equivalence.errors import require
from equivalence.report.terminal import is_terminal

if TYPE_CHECKING:
    from torch import Tensor

    from equivalence.pooling import Method
    from equivalence.quality.corpus import Corpus
    from equivalence.quality.study import Plan, Study

TINY_RATE, GIVEN_RATE, PRETRAINING_RATE = 1e-3, 1e-4, 3e-3


def quality(
    *,
    model: str,
    kv_heads: str,
    steps: int,
    seeds: int,
    method: str,
    pretrain_steps: int,
    learning_rate: float | None,
    text: Sequence[Path],
    checkpoints: Path | None,
    figure: str | None,
    device: str,
    json: str | None,
) -> int:
    """Run the study and report it; 0 when it is conclusive, 1 when it is not."""
    counts = tuple(whole_numbers("--kv-heads", kv_heads))
    at_least("--steps", steps, 1)
    at_least("--seeds", seeds, 1)
    at_least("--pretrain-steps", pretrain_steps, 1)
    above_zero("--learning-rate", learning_rate)
    one_of("--method", method, ("mean", "first", "random"))
    for path in text:
        require(path.is_file(), f"--text {path}: there is no such file")
    require_writable({"--json": json, "--figure": figure})
    if figure is not None:
        from equivalence.report.charts import require_chart

        require_chart("--figure", figure)
    if checkpoints is not None:
        require_folder("--checkpoints", checkpoints)

    from equivalence.quality.study import Plan, chosen_seeds
    from equivalence.quality.training import Recipe

    shape, weights, corpus = _opened(model, text)
    for count in counts:
        require(
            shape.num_heads % count == 0,
            f"--kv-heads {count}: the {shape.num_heads} heads must be a multiple of it",
        )
    rate = learning_rate or (TINY_RATE if weights is None else GIVEN_RATE)
    plan = Plan(
        shape=shape,
        kv_heads=counts,
        seeds=chosen_seeds(seeds),
        method=cast("Method", method),
        pretraining=Recipe(steps=pretrain_steps, learning_rate=PRETRAINING_RATE)
        if weights is None
        else None,
        uptraining=Recipe(steps=steps, learning_rate=rate),
        device=_device(device),
    )
    with stdout_kept_for(json):
        study = _run(plan, corpus, weights, checkpoints)
        facts = _report(study, figure)
    if json is not None:
        from equivalence.report.json import strict

        write_whole("--json", json, strict({"schema": 1, **facts}))
    return HELD if facts["conclusive"] else BROKEN


def _opened(model: str, text: Sequence[Path]) -> tuple[Any, Mapping[str, Tensor] | None, Corpus]:
    from equivalence.quality.corpus import corpus_of, own_text
    from equivalence.quality.study import TINY

    paths = list(text) or own_text()
    source = "given text" if text else "this program's own source and documentation"
    if model == "tiny":
        return TINY, None, corpus_of(paths, source=f"{source}, by byte")
    folder = Path(model).expanduser()
    require(folder.is_dir(), f"--model {model} is neither a folder nor tiny")
    from equivalence.quality.loading import encoder_of, shape_of, weights_of

    shape = shape_of(folder)
    encode, what = encoder_of(folder, shape.vocabulary)
    corpus = corpus_of(
        paths, encode=encode, vocabulary=shape.vocabulary, source=f"{source}, in {what}"
    )
    return shape, weights_of(folder), corpus


def _device(device: str) -> str:
    from equivalence.cli.validation import declared_facts

    return str(declared_facts(None, device=device)["device"])


def _report(study: Study, figure: str | None) -> dict[str, Any]:
    """Print the study, draw it where that is asked, and return it as plain numbers."""
    from equivalence.quality.verdict import doubts, remarks, rows_of
    from equivalence.report.quality import described, quality_chart, quality_facts, quality_table
    from equivalence.report.terminal import Printer

    rows = rows_of(study)
    against = doubts(study, rows)
    printer = Printer()
    worst = rows[-1]
    if against:
        printer.lines(("nothing", f"inconclusive: {doubt}") for doubt in against)
    else:
        printer.line(
            f"{worst.kv_heads} of {rows[0].kv_heads} key/value heads: {worst.untrained:.2f} bits "
            f"per token before training, {worst.trained:.2f} after, "
            f"{worst.gap:+.2f} to the control",
            "held",
        )
    printer.table(quality_table(study, rows, [*described(study), *remarks(study, rows)]))
    if figure is not None:
        quality_chart(study, rows, figure)
    return quality_facts(study, rows, against)


def _run(
    plan: Plan, corpus: Corpus, weights: Mapping[str, Tensor] | None, checkpoints: Path | None
) -> Study:
    """Run with a bar on a terminal; a pipe hears nothing until the end."""
    from equivalence.quality.study import run

    if not is_terminal(sys.stderr):
        return run(plan, corpus, weights=weights, checkpoints=checkpoints)
    from rich.console import Console
    from rich.progress import Progress

    total = len(plan.seeds) * len(plan.counts) * plan.uptraining.steps
    if plan.pretraining is not None:
        total += len(plan.seeds) * plan.pretraining.steps
    with Progress(console=Console(file=sys.stderr), transient=True) as bar:
        task = bar.add_task("training", total=total)
        seen: dict[str, int] = {}

        def show(stage: str, done: int, _: int) -> None:
            bar.update(task, description=stage, advance=done - seen.get(stage, 0))
            seen[stage] = done

        return run(plan, corpus, weights=weights, checkpoints=checkpoints, progress=show)
