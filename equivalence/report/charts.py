"""Charts as files, drawn with matplotlib from the ``report`` extra."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from equivalence.accounting.designs import Design
from equivalence.errors import require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ENDINGS: Final = (".svg", ".png", ".pdf", ".html")
COLOURS: Final = ("#4063d8", "#389826", "#cb3c33", "#9558b2", "#e08214", "#666666")


def require_chart(option: str, path: str) -> None:
    """Refuse an ending that is not drawn, or a chart where matplotlib is not installed."""
    ending = Path(path).suffix.lower()
    require(
        ending in ENDINGS,
        f"{option} {path}: the name must end in one of {', '.join(ENDINGS)}",
    )
    require(
        find_spec("matplotlib") is not None,
        f"{option} {path} needs matplotlib: pip install 'attention-equivalence[report]'",
    )


def designs_chart(compared: Mapping[str, Sequence[Design]], path: str) -> None:
    """One panel for each shape, one bar for each design, the largest first."""
    figure = new_figure(width=8, height=1.2 + 0.45 * sum(map(len, compared.values())))
    panels = figure.subplots(
        len(compared), 1, squeeze=False, height_ratios=[len(d) for d in compared.values()]
    )
    for (name, designs), panel in zip(compared.items(), panels[:, 0], strict=True):
        rows = list(reversed(designs))
        kinds = [one.name.split(",")[0] for one in rows]
        colours = {"MHA": COLOURS[5], "GQA": COLOURS[0], "MQA": COLOURS[1], "MLA": COLOURS[2]}
        bars = panel.barh(
            [one.name for one in rows],
            [one.elements for one in rows],
            color=[colours[kind] for kind in kinds],
        )
        panel.bar_label(bars, [f" {one.elements:,} ({one.smaller:.3g}x)" for one in rows])
        panel.set_xlim(right=1.2 * designs[0].elements)
        panel.set_title(name, loc="left")
        panel.spines[["top", "right"]].set_visible(False)
    panels[-1, 0].set_xlabel("elements kept per token and layer (times smaller than MHA)")
    save(figure, path, title="What each design keeps")


def new_figure(*, width: float, height: float) -> Figure:
    """A figure that needs no display."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Figure, path: str, *, title: str) -> None:
    """Write the figure in the form of the path's ending; .html holds it as SVG, in one file."""
    import matplotlib

    ending = Path(path).suffix.lower()
    drawn = io.BytesIO()
    form = "svg" if ending == ".html" else ending[1:]
    # The same figure is the same file: no date, and ids that do not depend on the moment.
    dated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with matplotlib.rc_context({"svg.hashsalt": title, "svg.fonttype": "none"}):
        figure.savefig(drawn, format=form, dpi=150, metadata=dated.get(form))
    content = drawn.getvalue()
    if ending == ".html":
        svg = content[content.index(b"<svg") :].decode("utf-8")
        page = (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            f"<title>{title}</title></head><body>\n{svg}</body></html>\n"
        )
        content = page.encode("utf-8")
    Path(path).write_bytes(content)
