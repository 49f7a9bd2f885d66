"""The table and the figure of `equivalence quality`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from equivalence.report.charts import COLOURS, new_figure, save
from equivalence.report.numbers import count, counted
from equivalence.report.tables import Table

if TYPE_CHECKING:
    from equivalence.quality.study import Study
    from equivalence.quality.verdict import Row


def quality_table(study: Study, rows: list[Row], notes: list[str]) -> Table:
    """A row for each number of key/value heads, and one for a uniform guess."""
    uniform = math.log2(study.corpus.vocabulary)
    drawn = [
        (
            str(row.kv_heads),
            f"{row.untrained:.3f}",
            _size(row.untrained_perplexity),
            f"{row.trained:.3f}",
            _size(row.trained_perplexity),
            f"{row.gap:+.3f} ± {row.spread:.3f}" if number else "control",
            f"{row.train:.3f}",
            "/".join(map(str, row.best_steps)),
        )
        for number, row in enumerate(rows)
    ]
    drawn.append(("uniform", f"{uniform:.3f}", _size(2**uniform), "", "", "", "", ""))
    headings = (
        "kv heads", "before", "perplexity", "after", "perplexity", "to control", "train",
        "best steps",
    )  # fmt: skip
    return Table(
        headings=headings, rows=tuple(drawn), right=frozenset(headings[1:]), notes=tuple(notes)
    )


def described(study: Study) -> list[str]:
    """What was run, in a few lines."""
    plan, corpus = study.plan, study.corpus
    parts = ", ".join(f"{count(size)} {part}" for part, size in corpus.sizes().items())
    shape = plan.shape
    lines = [
        "bits per token; a uniform guess knows nothing; train: the text trained on, at the end",
        f"{shape.num_layers} layers, {shape.num_heads} heads of {shape.head_dim}; "
        f"{corpus.source}: {parts} tokens",
        f"each model and the control: {plan.uptraining.steps} steps of "
        f"{plan.uptraining.batch_size} x {plan.uptraining.tokens} tokens, the same batches; "
        f"scored on test at its best calibration step, mean of {counted(len(plan.seeds), 'seed')}",
    ]
    if plan.pretraining is not None:
        lines.append(
            f"the model itself was trained here for {plan.pretraining.steps} steps: these figures "
            "are about a tiny model on little text, and show the shape of the cost, not its size"
        )
    return lines


def quality_facts(study: Study, rows: list[Row], doubts: list[str]) -> dict[str, Any]:
    """The study as plain numbers, with every curve."""
    return {
        "conclusive": not doubts,
        "doubts": doubts,
        "uniform_bits": math.log2(study.corpus.vocabulary),
        "corpus": {"source": study.corpus.source, "digest": study.corpus.digest,
                   "tokens": study.corpus.sizes()},
        "seeds": list(study.plan.seeds),
        "steps": study.plan.uptraining.steps,
        "rows": [
            {
                "kv_heads": row.kv_heads,
                "untrained_bits": row.untrained,
                "untrained_perplexity": row.untrained_perplexity,
                "trained_bits": row.trained,
                "trained_perplexity": row.trained_perplexity,
                "train_bits": row.train,
                "gap_to_control": row.gap,
                "gap_spread": row.spread,
                "best_steps": list(row.best_steps),
            }
            for row in rows
        ],
        "curves": [
            {"kv_heads": kv_heads, "seed": seed, **curve.facts()}
            for (kv_heads, seed), curve in study.curves.items()
        ],
        "pretraining": [
            {"seed": seed, **curve.facts()} for seed, curve in study.pretraining.items()
        ],
    }  # fmt: skip


def quality_chart(study: Study, rows: list[Row], path: str) -> None:
    """Learning curves on test and on training text, and bits by key/value heads."""
    figure = new_figure(width=11, height=4.2)
    curves, heads = figure.subplots(1, 2)
    for number, row in enumerate(rows):
        colour = COLOURS[number % len(COLOURS)]
        runs = study.of(row.kv_heads)
        steps = runs[0].steps
        mean = [sum(run.test[i] for run in runs) / len(runs) for i in range(len(steps))]
        label = f"{row.kv_heads} heads" + (" (control)" if not number else "")
        curves.plot(steps, mean, color=colour, marker="o", markersize=3, label=label)
        for run in runs:
            curves.plot(steps, run.test, color=colour, alpha=0.25, linewidth=0.8)
            seen = [(s, b) for s, b in zip(steps, run.train, strict=True) if b is not None]
            curves.plot(*zip(*seen, strict=True), color=colour, alpha=0.25, linestyle=":")
    curves.set_xlabel("steps of training after the conversion")
    curves.set_ylabel("bits per token")
    curves.set_title("test (lines), training text (dotted), each seed pale", loc="left", size=10)
    curves.legend(frameon=False, fontsize=8)
    places = list(range(len(rows)))
    heads.plot(places, [row.untrained for row in rows], "o-", color=COLOURS[2], label="before")
    heads.errorbar(
        places,
        [row.trained for row in rows],
        yerr=[row.spread for row in rows],
        fmt="o-",
        color=COLOURS[0],
        label="after",
    )
    heads.axhline(rows[0].trained, color=COLOURS[5], linewidth=0.8, linestyle="--")
    heads.set_xticks(places, [str(row.kv_heads) for row in rows])
    heads.set_xlabel("key/value heads")
    heads.set_title("test bits before and after; dashed: the control", loc="left", size=10)
    heads.legend(frameon=False, fontsize=8)
    for panel in (curves, heads):
        panel.spines[["top", "right"]].set_visible(False)
    save(figure, path, title="What fewer key/value heads cost")


def _size(perplexity: float) -> str:
    return f"{perplexity:,.2f}" if perplexity < 1000 else f"{perplexity:,.0f}"
