"""The list of backends: as a table of a terminal, and as the page of the documentation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from equivalence.report.tables import Table
from equivalence.report.text import Shown

if TYPE_CHECKING:
    from equivalence.backend_facts import BackendFacts

HEADINGS: Final = (
    "backend", "kind", "here", "version", "dtypes", "causal", "masked rows", "profile", "faults",
)  # fmt: skip
PAGE: Final = """\
# Backends

<!-- Written by `equivalence backends --markdown docs/backends.md`: do not edit. -->

What `equivalence check NAME` can be asked about, from the declarations in
backends/. *Here* is the environment that wrote
this page, `pip install -c constraints.txt -e '.[all]'`: *slow* ones run when they are named and not
with all; *unverified* ones are adapters written from documentation that have never met their
library. *Causal* is the corner that it counts from where q_len and kv_len differ; *masked rows*
what a row that sees no key holds; *profile* the roundings that it is allowed in 16 bit
([profiles.md](profiles.md)); *faults* the known ones, declared and shown again on every run
([known-faults.md](known-faults.md)).

    equivalence backends
    equivalence backends --brief
    equivalence backends --markdown docs/backends.md
"""


def backends_table(facts: Sequence[BackendFacts]) -> Table:
    """A row for each backend."""
    return Table(headings=HEADINGS, rows=tuple(_row(one) for one in facts))


def backends_lines(facts: Sequence[BackendFacts]) -> list[Shown]:
    """Why some cannot run here, those with the same reason together."""
    reasons: dict[str, list[str]] = {}
    for one in facts:
        if one.why:
            reasons.setdefault(one.why, []).append(one.name)
    return [("quiet", f"{', '.join(names)}: {why}") for why, names in reasons.items()]


def backends_page(facts: Sequence[BackendFacts]) -> str:
    """The whole page, in Markdown."""
    lines = [PAGE, "| " + " | ".join((*HEADINGS, "extra")) + " |"]
    lines.append("|" + "---|" * (len(HEADINGS) + 1))
    for one in facts:
        extra = f"`{one.install}`" if one.install else ""
        lines.append("| " + " | ".join((f"`{one.name}`", *_row(one)[1:], extra)) + " |")
    missing = [f"- {text}" for _, text in backends_lines(facts)]
    if missing:
        lines += ["", "## Not available in that environment", "", *missing]
    return "\n".join(lines) + "\n"


def _row(one: BackendFacts) -> tuple[str, ...]:
    return (
        one.name,
        one.kind,
        one.here,
        one.version,
        one.dtypes,
        one.causal,
        one.masked_rows,
        one.profile,
        str(one.faults) if one.faults else "",
    )
