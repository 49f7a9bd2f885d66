"""Timing curves as a page draws them: log-log, one line a formulation, and the floor below."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from equivalence.report.merging import Merge
from equivalence.report.numbers import counted
from equivalence.timing.results import Row, TimingRun

WIDTH, HEIGHT, MARGIN = 640.0, 320.0, 68.0


@dataclass(frozen=True, slots=True)
class Line:
    """One formulation: its points on the drawing, and in words."""

    name: str
    points: list[tuple[float, float]]
    words: list[tuple[str, str, str]]


@dataclass(frozen=True, slots=True)
class Chart:
    """The rows of one run in one dtype."""

    title: str
    across: str
    lines: list[Line]
    floor: list[tuple[float, float]]
    marks_across: list[tuple[float, str]]
    marks_up: list[tuple[float, str]]
    reading: list[str] = field(default_factory=list)


def charts(merge: Merge) -> list[Chart]:
    """A chart for each timed run and dtype; runs are in the order of their text."""
    found: list[Chart] = []
    for key in sorted(merge.timings):
        run = merge.timings[key]
        for dtype in sorted({row.dtype for row in run.rows}):
            rows = [row for row in run.rows if row.dtype == dtype and _seconds(row) > 0]
            if rows:
                found.append(_chart(run, dtype, rows))
    return found


def _seconds(row: Row) -> float:
    seconds = row.time.minimum if row.time is not None else 0.0
    return seconds if math.isfinite(seconds) else 0.0


def _chart(run: TimingRun, dtype: str, rows: list[Row]) -> Chart:
    heads = {row.sizes.get("num_kv_heads", 0) for row in rows}
    by_heads = len(heads) > 1 and 0 not in heads

    def place(row: Row) -> float:
        return float(row.sizes["num_kv_heads"] if by_heads else max(1, row.cache_bytes))

    floors = {
        place(row): row.floor.seconds
        for row in rows
        if row.floor is not None and row.floor.seconds > 0
    }
    across = _scale([place(row) for row in rows], MARGIN, WIDTH - 8)
    up = _scale([*map(_seconds, rows), *floors.values()], HEIGHT - MARGIN, 8)
    lines = []
    for name in sorted({row.subject for row in rows}):
        own = sorted((r for r in rows if r.subject == name), key=lambda r: (place(r), _seconds(r)))
        words = [(_size(place(r), by_heads), _time(_seconds(r)), _over(r.over_floor)) for r in own]
        lines.append(Line(name, [(across(place(r)), up(_seconds(r))) for r in own], words))
    times = sorted(map(_seconds, rows))
    return Chart(
        title=f"{run.command}, {dtype}, {run.device}, {counted(run.threads, 'thread')}",
        across="key/value heads" if by_heads else "bytes of cache",
        lines=lines,
        floor=[(across(x), up(y)) for x, y in sorted(floors.items())],
        marks_across=[(across(x), _size(x, by_heads)) for x in sorted({place(r) for r in rows})],
        marks_up=[(up(t), _time(t)) for t in dict.fromkeys((times[0], times[-1]))],
        reading=list(run.reading),
    )


class _Scale:
    """From a positive number to a place between two ends, by its logarithm."""

    def __init__(self, least: float, most: float, start: float, end: float) -> None:
        self.least, self.most, self.start, self.end = least, most, start, end

    def __call__(self, value: float) -> float:
        if self.most <= self.least:
            return (self.start + self.end) / 2
        share = math.log(value / self.least) / math.log(self.most / self.least)
        return round(self.start + share * (self.end - self.start), 2)


def _scale(values: Iterable[float], start: float, end: float) -> _Scale:
    known = list(values)
    return _Scale(min(known), max(known), start, end)


def _size(value: float, by_heads: bool) -> str:
    if by_heads:
        return f"{value:.0f}"
    return f"{value / 2**20:.3g} MiB" if value >= 2**18 else f"{value / 1024:.3g} KiB"


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


def _over(times: float | None) -> str:
    return "" if times is None or not math.isfinite(times) else f"{times:.2g}"
