"""Runs as one HTML page that needs no network: nothing in it loads, and only its script runs."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from equivalence.report.merging import Merge
from equivalence.report.numbers import count, counted, percent, short
from equivalence.report.timing_views import HEIGHT, MARGIN, WIDTH, charts
from equivalence.report.views import (
    MARKS,
    STRIP_LABELS,
    STRIP_WORDS,
    curves,
    disagreements,
    distributions,
    headline,
    matrices,
    meanings,
    targets,
    worst_cases,
)

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES: Final = "templates"


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("equivalence.report", TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(count=count, percent=percent, short=short)
    return made


def page(merge: Merge) -> str:
    """The whole page; names, texts and replay lines are shown as text, whatever they hold."""
    return "".join(page_parts(merge))


def page_parts(merge: Merge) -> Iterator[str]:
    """The page, piece by piece."""
    from markupsafe import Markup

    style, script = _ours("page.css"), _ours("page.js")
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    facts: dict[str, Any] = {
        "audits": [merge.audits[key] for key in sorted(merge.audits)],
        "charts": charts(merge),
        "complaints": sorted(merge.complaints),
        "counted": counted,
        "curves": curves(merge),
        "disagreements": disagreements(merge),
        "distributions": distributions(merge),
        "environments": [_flat(merge.environments[key]) for key in sorted(merge.environments)],
        "headline": headline(merge),
        "marks": MARKS,
        "matrices": matrices(merge),
        "meanings": meanings(merge),
        "odd": sorted(merge.odd),
        "remarks": sorted(merge.remarks),
        "runs": sorted(merge.runs),
        "strip_labels": STRIP_LABELS,
        "strip_words": STRIP_WORDS,
        "targets": targets(merge),
        "unavailable": sorted(merge.unavailable),
        "worst": worst_cases(merge),
        # ours, and the only text that is not escaped
        "chart_size": (WIDTH, HEIGHT, MARGIN),
        "policy": policy,
        "script": Markup(script),
        "style": Markup(style),
    }
    yield from _environment().get_template("page.html.jinja").stream(facts)


def _ours(name: str) -> str:
    return (files("equivalence.report") / TEMPLATES / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def _flat(value: Any, prefix: str = "") -> list[tuple[str, str]]:
    """Nested facts as (dotted name, text) rows."""
    if isinstance(value, dict):
        rows = []
        for name in sorted(value):
            rows += _flat(value[name], f"{prefix}.{name}" if prefix else name)
        return rows
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return [(prefix, "not installed" if value is None else text)]
