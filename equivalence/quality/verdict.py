"""What a study shows, and when it shows nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean

from equivalence.quality.study import Study


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One number of key/value heads, over the seeds.

    untrained and trained: mean test bits per token before, and at the best calibration step.
    train: mean training bits at the end. gap: trained less the control's, seed by seed; spread:
    half the distance from the least to the largest gap. best_steps: where calibration was best.
    """

    kv_heads: int
    untrained: float
    trained: float
    train: float
    gap: float
    spread: float
    best_steps: tuple[int, ...]

    @property
    def untrained_perplexity(self) -> float:
        """2 to the untrained bits."""
        return _power(self.untrained)

    @property
    def trained_perplexity(self) -> float:
        """2 to the trained bits."""
        return _power(self.trained)


def rows_of(study: Study) -> list[Row]:
    """A row for each number of key/value heads, the control first."""
    control = study.of(study.plan.shape.num_heads)
    rows = []
    for count in study.plan.counts:
        curves = study.of(count)
        gaps = [own.bits - other.bits for own, other in zip(curves, control, strict=True)]
        rows.append(
            Row(
                kv_heads=count,
                untrained=fmean(curve.untrained_bits for curve in curves),
                trained=fmean(curve.bits for curve in curves),
                train=fmean(curve.train[-1] or math.nan for curve in curves),
                gap=fmean(gaps),
                spread=(max(gaps) - min(gaps)) / 2,
                best_steps=tuple(curve.steps[curve.best] for curve in curves),
            )
        )
    return rows


def doubts(study: Study, rows: list[Row]) -> list[str]:
    """Why the study is inconclusive; none where it shows what it set out to."""
    found = []
    control, *converted = rows
    uniform = math.log2(study.corpus.vocabulary)
    if not converted:
        return ["no model with fewer key/value heads was run"]
    if len(study.plan.seeds) < 3:
        found.append(f"{len(study.plan.seeds)} of the three seeds that a comparison needs were run")
    if not control.untrained < uniform:
        found.append(
            f"the model itself scores {control.untrained:.2f} bits, no better than the "
            f"{uniform:.2f} of a uniform guess"
        )
    for more, fewer in zip(rows, converted, strict=False):
        if not fewer.untrained > more.untrained:
            found.append(
                f"untrained bits do not rise from {more.kv_heads} to {fewer.kv_heads} key/value "
                f"heads ({more.untrained:.3f} to {fewer.untrained:.3f})"
            )
    own = study.of(control.kv_heads)
    for row in converted:
        runs = study.of(row.kv_heads)
        lost = [run.untrained_bits - one.untrained_bits for run, one in zip(runs, own, strict=True)]
        if not all(bits > 0 for bits in lost):
            found.append(
                f"with {row.kv_heads} key/value heads untrained bits do not rise in every seed"
            )
        if not row.gap < fmean(lost):
            found.append(
                f"training recovers nothing at {row.kv_heads} key/value heads: "
                f"{fmean(lost):.3f} bits from the control before, {row.gap:.3f} after"
            )
    return found


def remarks(study: Study, rows: list[Row]) -> list[str]:
    """What the reader of the table should know."""
    said = []
    last = study.plan.uptraining.steps
    rising = [row.kv_heads for row in rows if all(step == last for step in row.best_steps)]
    if rising:
        said.append(f"still improving at the last step: {_listed(rising)} key/value heads")
    near = [row.kv_heads for row in rows[1:] if abs(row.gap) <= row.spread]
    if near:
        said.append(f"no further from the control than seeds are apart: {_listed(near)} heads")
    return said


def _power(bits: float) -> float:
    return 2.0**bits if bits < 1000 else math.inf


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))
