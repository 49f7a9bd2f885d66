"""The table of `equivalence time`, and the run as a report that `equivalence gate` reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from equivalence.report.json import number
from equivalence.report.schema import (
    SCHEMA,
    DtypeJson,
    LawJson,
    ReportJson,
    TargetJson,
)
from equivalence.report.tables import Table
from equivalence.timing.history import Change
from equivalence.timing.reading import savings
from equivalence.timing.results import CRASHED, Bandwidth, Row, TimingRun

LAW: Final = "agrees-with-float64"
MIB: Final = 2**20
NO: Final = "-"
INTERRUPTED: Final = 130  # as a shell reports it
# What a call must read at least, where it is not the cache alone.
READ: Final = {"mla": "the cache and the weights", "rotary": "the tokens"}
SIZE_WORDS: Final = {
    "batch_size": "batch",
    "num_kv_heads": "kv heads",
    "kv_len": "context",
    "seq_len": "tokens",
}


def timing_tables(run: TimingRun) -> list[Table]:
    """A table for each number format."""
    dtypes = dict.fromkeys(row.dtype for row in run.rows)
    return [_table(run, dtype) for dtype in dtypes]


def _table(run: TimingRun, dtype: str) -> Table:
    rows = [row for row in run.rows if row.dtype == dtype]
    saved = {saving.subject: saving for saving in savings(run.rows) if saving.dtype == dtype}
    sizes = [word for word in SIZE_WORDS if len({row.sizes.get(word) for row in run.rows}) > 1]
    extras = list(dict.fromkeys(name for row in rows for name in row.extras))
    drawn = []
    for row in rows:
        saving = saved.get(row.subject)
        heads = row.sizes.get("num_kv_heads", 0)
        faster = None if saving is None else saving.faster.get(heads)
        drawn.append(
            (
                row.subject,
                *(str(row.sizes.get(word, NO)) for word in sizes),
                _size(row.cache_bytes),
                *_time_cells(row),
                *_saving_cells(row, faster, None if saving is None else saving.smaller.get(heads)),
                *(f"{row.extras[name]:.3g}" if name in row.extras else NO for name in extras),
                _size(row.allocation.allocated),
                {True: "copies", False: "no", None: "?"}[row.materialises] if row.time else NO,
                f"{row.flops_per_byte:.3g}",
                _kernel(row) if row.time else row.why,
            )
        )
    headings = (
        dtype, *(SIZE_WORDS[word] for word in sizes), "cache", "floor ms", "ms", "median",
        "spread", "x floor", "faster", "smaller", *extras, "allocated", "copy", "flop/B", "kernel",
    )  # fmt: skip
    shown = [
        place
        for place, heading in enumerate(headings)
        if heading not in ("faster", "smaller") or any(cells[place] != NO for cells in drawn)
    ]
    headings = tuple(headings[place] for place in shown)
    right = frozenset(headings) - {dtype, "copy", "kernel"}
    kept = tuple(tuple(cells[place] for place in shown) for cells in drawn)
    return Table(headings=headings, rows=kept, right=right)


def _kernel(row: Row) -> str:
    """What SDPA chose, where it was asked; else what took most of the time."""
    chosen = [name for name in row.kernels if name.startswith("_scaled_dot_product")]
    return next(iter(chosen or row.kernels), NO)


def _time_cells(row: Row) -> tuple[str, ...]:
    floor = NO
    if row.floor is not None:
        floor = _ms(row.floor.seconds) + ("c" if row.floor.where == "cache" else "")
    if row.time is None:
        return (floor, NO, NO, NO, NO)
    mark = "!" if row.time.contended else ""
    return (
        floor,
        _ms(row.time.minimum),
        _ms(row.time.median) + mark,
        f"{row.time.spread:.2f}",
        _multiple(row.over_floor),
    )


def _multiple(number: float | None) -> str:
    if number is None:
        return NO
    return f"{number:.3g}" if number < 100 else f"{number:,.0f}"


def _saving_cells(row: Row, faster: float | None, smaller: float | None) -> tuple[str, str]:
    if row.time is None or faster is None or smaller is None:
        return (NO, NO)
    return (f"{faster:.3g}x", f"{smaller:.3g}x")


def notes(run: TimingRun) -> list[str]:
    """How the table is to be read, and what it was measured on."""
    lines = []
    if run.bandwidth is not None:
        lines.append(bandwidth_line(run.bandwidth, run.threads))
    clocks = sorted({row.time.clock for row in run.rows if row.time is not None})
    rounds = max((row.time.rounds for row in run.rows if row.time is not None), default=0)
    lines.append(
        f"ms: the fastest of {rounds} interleaved rounds, by the {' and '.join(clocks)} clock; "
        f"floor: {READ.get(run.command, 'the cache')} read once, "
        "c: from the last-level cache; faster, smaller: against as many KV heads as query heads; "
        "allocated: during the call"
    )
    if any(row.time is not None and row.time.contended for row in run.rows):
        lines.append(
            "!: other work had the core in between; the figures are CPU time, and the time on "
            "the wall (in the JSON) says nothing about the kernel"
        )
    lines.append(
        f"the run took {run.cpu_seconds:.0f} s of CPU in {run.seconds:.0f} s, and at most "
        f"{run.peak_bytes / 2**30:.2g} GiB"
    )
    return lines + list(run.remarks)


def trace_lines(run: TimingRun) -> list[str]:
    """The steps of each formulation that share the cache's memory and that copy it, once each.

    Of each, the row with the most steps that copy: at other sizes there may be none.
    """
    lines = []
    for subject in dict.fromkeys((row.subject, row.dtype) for row in run.rows):
        rows = [row for row in run.rows if (row.subject, row.dtype) == subject and row.time]
        if not rows:
            continue
        row = max(rows, key=lambda row: len(row.allocation.copies))
        known = row.allocation
        steps = [f"{step} shares" for step in known.shares]
        steps += [f"{step} copies" for step in known.copies]
        told = "; ".join(steps) if known.traced else "its steps cannot be followed"
        lines.append(f"{' '.join(subject)}: {told or 'it is read where it lies'}")
    return lines


def bandwidth_line(bandwidth: Bandwidth, threads: int) -> str:
    """The measured bandwidth, in one line."""
    known = "assumed to hold" if bandwidth.assumed else "holds"
    return (
        f"floor: {bandwidth.memory / 1e9:.1f} GB/s from memory ({bandwidth.memory_bytes // MIB} "
        f"MiB), {bandwidth.cache / 1e9:.1f} GB/s cache-resident ({bandwidth.cache_bytes // MIB} "
        f"MiB), {threads} thread{'s' * (threads != 1)}; the last-level cache {known} "
        f"{bandwidth.last_level // MIB} MiB"
    )


def change_lines(found: Sequence[Change], differences: Sequence[str]) -> list[str]:
    """What became of the rows of an earlier run; what differs between the machines comes first."""
    lines = [f"not the same machine: {text}" for text in differences]
    beyond = [change for change in found if change.beyond]
    for change in beyond:
        row = change.row
        sizes = ", ".join(
            f"{row.sizes[word]} {name}" for word, name in SIZE_WORDS.items() if word in row.sizes
        )
        lines.append(
            f"{'slower' if change.ratio > 1 else 'faster'}: {row.subject} {row.dtype} ({sizes}): "
            f"{change.ratio:.2f} times its earlier time, {change.relative:.2f} of what all rows "
            "have in common"
        )
    lines.append(f"{len(found)} rows compared, {len(beyond)} differ by more than chance")
    return lines


def timing_report(
    run: TimingRun, environment: Mapping[str, Any], asked: Sequence[str] = ()
) -> ReportJson:
    """The run in the schema of `check --json`: verdicts, times, allocations and ratios.

    asked: the targets that were named, as for :func:`exit_code`.
    """
    subjects = dict.fromkeys(row.subject for row in run.rows)
    return ReportJson(
        schema=SCHEMA,
        targets=[_target(run, subject) for subject in subjects],
        environment=dict(environment),
        exit_code=exit_code(run, asked),
        interrupted=run.interrupted,
        seconds=number(run.seconds),
        timing=run,
    )


def untimed(run: TimingRun, asked: Sequence[str]) -> list[str]:
    """Those of the targets ``asked`` for that have no time in any row."""
    timed = [row for row in run.rows if row.time is not None]
    return [name for name in asked if not any(row.is_about(name) for row in timed)]


def exit_code(run: TimingRun, asked: Sequence[str] = ()) -> int:
    """130 once interrupted; 3: a target crashed; 1: an answer was wrong, or nothing has a time,
    or a target that was ``asked`` for has none.
    """
    if run.interrupted:
        return INTERRUPTED
    if any(row.why.startswith(CRASHED) for row in run.rows):
        return 3
    wrong = any(row.held is False for row in run.rows)
    nothing = not any(row.time is not None for row in run.rows)
    return int(wrong or nothing or bool(untimed(run, asked)))


def _target(run: TimingRun, subject: str) -> TargetJson:
    rows = [row for row in run.rows if row.subject == subject]
    judged = [row for row in rows if row.held is not None]
    held = all(row.held for row in judged) if judged else None
    return TargetJson(
        target=subject,
        kind=run.command,
        held=held,
        profile=rows[0].profile,
        laws=[_law(rows)] if judged else [],
        tolerance={},
        not_exercised={_label(row): row.why for row in rows if row.held is None},
        timings={f"{_label(r)}: seconds": r.time.minimum for r in rows if r.time is not None},
        allocation={
            f"{_label(row)}: bytes": float(row.allocation.allocated)
            for row in rows
            if row.time is not None and row.allocation.traced and row.allocation.allocated
        },
        ratios=_ratios(run, rows),
    )


def _law(rows: Sequence[Row]) -> LawJson:
    dtypes = []
    for dtype in dict.fromkeys(row.dtype for row in rows):
        own = [row for row in rows if row.dtype == dtype]
        judged = [row for row in own if row.held is not None]
        dtypes.append(
            DtypeJson(
                dtype=dtype,
                held=all(row.held for row in judged) if judged else None,
                examples=len(judged),
                vacuous=0,
                refused=len(own) - len(judged),
                used=number(max((row.used for row in judged), default=0.0)),
            )
        )
    judged = [row for row in rows if row.held is not None]
    return LawJson(
        name=LAW,
        held=all(row.held for row in judged),
        examples=len(judged),
        vacuous=0,
        refused=len(rows) - len(judged),
        used=number(max(row.used for row in judged)),
        dtypes=dtypes,
    )


def _ratios(run: TimingRun, rows: Sequence[Row]) -> dict[str, Any]:
    """Times over times of the same run: a gate may assert on them, whatever the machine.

    Over the same formulation at the most KV heads, and over the fastest formulation of its size.
    """
    found: dict[str, Any] = {}
    for row in rows:
        if row.time is None:
            continue
        alike = [
            other.time
            for other in run.rows
            if other.time is not None
            and (other.dtype, dict(other.sizes)) == (row.dtype, dict(row.sizes))
        ]
        best = min(alike, key=lambda time: time.minimum)
        if len(alike) > 1:
            found[f"{_label(row)}: over the fastest"] = row.time.ratio(best)
        most = max(
            (other for other in rows if other.dtype == row.dtype and other.time is not None),
            key=lambda other: other.sizes.get("num_kv_heads", 0),
        )
        if most.time is not None and most is not row and "num_kv_heads" in row.sizes:
            heads = most.sizes["num_kv_heads"]
            found[f"{_label(row)}: over {heads} kv heads"] = row.time.ratio(most.time)
    return found


def _label(row: Row) -> str:
    sizes = [f"{row.sizes[word]} {name}" for word, name in SIZE_WORDS.items() if word in row.sizes]
    return ", ".join([row.dtype, *sizes])


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g}" if seconds < 1 else f"{seconds * 1e3:,.0f}"


def _size(size: int | None) -> str:
    if size is None:
        return "?"
    for unit, name in ((2**30, "GiB"), (MIB, "MiB"), (2**10, "KiB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size} B"
