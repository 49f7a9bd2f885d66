"""Figures of `equivalence time`: time against key/value heads beside the floor, log-log."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from equivalence.report.charts import new_figure, save
from equivalence.timing.floor import floor_of
from equivalence.timing.results import Row, TimingRun

# Okabe and Ito (2008): eight colours that stay apart in every form of colour blindness. Lines also
# differ by marker and by dash, for grey print; the yellow is darkened, to be seen on white.
COLOURS: Final = (
    "#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#000000", "#b8a800",
)  # fmt: skip
MARKERS: Final = "osD^vPXd"
DASHES: Final = ("-", "--", ":")
ENDINGS: Final = ("png", "svg")


def timing_charts(run: TimingRun, folder: Path) -> list[Path]:
    """Write one figure for each number format, as PNG and as SVG; gives the paths.

    Runs over several contexts or batches without head counts get time against cache bytes.
    """
    written = []
    for dtype in dict.fromkeys(row.dtype for row in run.rows):
        rows = [row for row in run.rows if row.dtype == dtype and row.time is not None]
        if not rows:
            continue
        for ending in ENDINGS:
            path = folder / f"{run.command}-{dtype}.{ending}"
            _draw(run, dtype, rows, path)
            written.append(path)
    return written


def _draw(run: TimingRun, dtype: str, rows: list[Row], path: Path) -> None:
    by_heads = len({row.sizes.get("num_kv_heads") for row in rows}) > 1 and run.command != "mla"
    figure = new_figure(width=8.5, height=5.2)
    panel = figure.subplots()
    for number, subject in enumerate(dict.fromkeys(row.subject for row in rows)):
        own = sorted((row for row in rows if row.subject == subject), key=lambda r: _x(r, by_heads))
        panel.plot(
            [_x(row, by_heads) for row in own],
            [row.time.minimum * 1e3 for row in own if row.time is not None],
            color=COLOURS[number % len(COLOURS)],
            marker=MARKERS[(number + number // len(COLOURS)) % len(MARKERS)],
            linestyle=DASHES[number // len(COLOURS) % len(DASHES)],
            markersize=5,
            label=subject,
        )
    _floor(run, rows, panel, by_heads)
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    places = sorted({_x(row, by_heads) for row in rows})
    if by_heads:
        panel.set_xticks(places, [str(int(place)) for place in places])
        panel.set_xlabel("key/value heads")
    else:
        panel.set_xlabel("cache, MiB" if rows[0].floor is not None else "conversion")
    panel.set_ylabel("ms, fastest round")
    sizes = rows[0].sizes
    about = ", ".join(
        f"{sizes[name]} {word}"
        for name, word in (("num_heads", "query heads"), ("head_dim", "channels"))
        if name in sizes
    )
    if by_heads:
        about += f", batch {sizes['batch_size']}, context {sizes['kv_len']}"
    panel.set_title(f"{run.command}, {dtype}: {about}", loc="left", size=10)
    panel.grid(True, which="major", color="#dddddd", linewidth=0.6)
    panel.spines[["top", "right"]].set_visible(False)
    panel.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    save(figure, str(path), title=f"{run.command} {dtype}")


def _x(row: Row, by_heads: bool) -> float:
    if by_heads:
        return float(row.sizes["num_kv_heads"])
    return max(1, row.cache_bytes) / 2**20


def _floor(run: TimingRun, rows: list[Row], panel: object, by_heads: bool) -> None:
    """The floor of a cache that rounds nothing, where there is one."""
    if run.bandwidth is None or all(row.floor is None for row in rows):
        return
    known: dict[float, float] = {}
    for row in rows:
        seconds = floor_of(row.cache_bytes, run.bandwidth).seconds
        place = _x(row, by_heads)
        known[place] = max(seconds, known.get(place, 0.0))
    line = sorted(known.items())
    plot = panel.plot  # type: ignore[attr-defined]
    plot(
        [place for place, _ in line],
        [1e3 * seconds for _, seconds in line],
        color="#777777",
        linewidth=2.5,
        alpha=0.7,
        label="floor: the cache read once",
        zorder=0,
    )
