"""docs/evidence/detection.md, made of docs/evidence/data/detection.json: no figure is typed in."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any, Final

from benchmarks.detection_record import Record
from benchmarks.detection_tables import dtypes_of, floor_lines, rule_lines, table
from benchmarks.mutant_lines import mutant_lines

Rows = Sequence[dict[str, Any]]

HEAD: Final = """\
# What the check catches

The harness judged by the collection of broken attention kernels (`tests/broken`): each is a right
kernel with a mistake of a few lines, most of them re-creations of public bug reports, in every
dtype in which it must be seen. Beside it stand the rules by which kernels are accepted elsewhere,
on the same kernels. Every figure is read from
[detection.json](data/detection.json), to which each command adds its rows, with the commit, the
versions and the seed; what a command has not run is said to be missing."""
RUNS: Final = (
    "python -m benchmarks.detection search --laws all",
    "python -m benchmarks.detection search --laws own",
    "python -m benchmarks.detection search --set second --laws own",
    "python -m benchmarks.detection rules",
    "python -m benchmarks.detection floor",
    "python -m benchmarks.detection mutants",
)
GENERATE: Final = "python docs/generate.py"
LAWS: Final = {
    "all": "All laws together, as `equivalence check` runs them: identity card, 120 cases, every "
    "failure shrunk and named.",
    "own": "The laws that see the mistake first, alone: what a search costs that has not to shrink "
    "for other laws too.",
}


ABOUT_AGAIN: Final = """\
What the first run taught: rows of different lengths beside ALiBi and causal order are asked for on
purpose, and where only rows of huge negative biases are wrong, smaller biases are tried. Two edits
(`slopes_from_the_padded_end`, `diagonal_of_the_first_row`) had raised where their option came, so
that a check listed it as not exercised; they are put right here."""
RULES_FIXED: Final = "76d4529ae17b"
ABOUT_SECOND: Final = """\
{kernels} edits of a line or two in right backends (`tests/broken/second_set.py`), written when
the rules of the diagnosis were fixed (commit {rules}) and run as they were written: the first
run, by rules that had not seen them, though who wrote them had seen the rules. The names that count
as right were written down beside each edit. Where a smallest case could be told from the edit, it
was, for float32; elsewhere none is stated."""


def page(record: Record) -> str:
    """The whole page."""
    lines = [HEAD, "", *commands()]
    lines += _searches(record.get("search", {}))
    lines += _second(record)
    lines += rule_lines(record.get("rules", {}), made_with(record.get("rules", {})))
    lines += floor_lines(record.get("floor", {}), made_with(record.get("floor", {})))
    lines += mutant_lines(record.get("mutants", {}), made_with(record.get("mutants", {})))
    return "\n".join(lines).rstrip() + "\n"


def commands() -> list[str]:
    """The commands that make the record, and the page of it."""
    lines = [f"    OMP_NUM_THREADS=1 {line}" for line in RUNS]
    return ["<!-- not run: takes more than half an hour -->", "", *lines, f"    {GENERATE}", ""]


def made_with(part: dict[str, Any]) -> list[str]:
    """The command of a part, and what its rows were made with, run by run."""
    told = dict.fromkeys(_made_with(run) for run in part.get("about", []))
    return [line for one in told for line in (one, "")]


def _made_with(run: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in run["packages"].items())
    dtypes = f", {' and '.join(run['dtypes'])}" if run.get("dtypes") else ""
    if run.get("every"):
        dtypes += f", --laws {run['laws']} on one kernel of {run['every']}"
    busy = run.get("load")
    load = f", beside others (load {busy[0]} on {busy[1]} cores)" if busy else ""
    return (
        f"Seed {run['seed']}{dtypes}, commit {run['commit']}, {run['day']}; "
        f"Python {run['python']}, {versions}; {run['processor']}, 1 thread{load}."
    )


def _searches(part: dict[str, Any]) -> Iterator[str]:
    rows = part.get("rows", [])
    yield "## The score"
    yield ""
    yield "`benchmarks.detection search`."
    yield ""
    yield from made_with(part)
    for laws, says in LAWS.items():
        chosen = [row for row in rows if row["laws"] == laws]
        yield f"### {'All laws' if laws == 'all' else 'Its own laws'}"
        yield ""
        yield f"{says} `--laws {laws}`."
        yield ""
        yield from _score(chosen)
        yield ""
    yield "Cases: drawn until the first failure. Seconds: of one core, from the first call to the"
    yield "last shrunk case and its name. Whole: to the end of the check, which looks for further"
    yield "faults where the ones that have a name cannot show; without a figure, the seconds are to"
    yield "the end as well. Right name: the kind of the first diagnosis is one that"
    yield "the collection gives to the kernel. Minimal: no larger than the case which the"
    yield "collection states. Names and smallest cases are stated for float32; the others are"
    yield "judged by the same."
    yield ""
    yield from _exceptions(rows)


def _second(record: Record) -> Iterator[str]:
    """The kernels that were written once the rules of the diagnosis were fixed."""
    rows = record.get("second", {}).get("rows", [])
    yield "## The second set"
    yield ""
    yield "`benchmarks.detection search --set second --laws own`."
    yield ""
    yield from made_with(record.get("second", {}))
    kernels = len({row["kernel"] for row in rows})
    yield ABOUT_SECOND.format(kernels=kernels, rules=RULES_FIXED) if rows else "Not run."
    yield ""
    if rows:
        yield from _score(rows)
        yield ""
        yield from _exceptions(rows)
    again = record.get("again", {})
    if again.get("rows"):
        yield "### Again, once what the first run taught was in the rules"
        yield ""
        yield "`benchmarks.detection search --set again --laws own`."
        yield ""
        yield from made_with(again)
        yield ABOUT_AGAIN
        yield ""
        yield from _score(again["rows"])
        yield ""
        yield from _exceptions(again["rows"])


def _score(rows: Rows) -> list[str]:
    head = (
        "dtype", "caught", "cases, median", "worst", "seconds, median", "worst", "right name",
        "minimal", "whole, median",
    )  # fmt: skip
    body = []
    for dtype in dtypes_of(rows):
        mine = [row for row in rows if row["dtype"] == dtype]
        caught = [row for row in mine if row["caught"]]
        first = [row["first"] for row in caught if row["first"] is not None]
        seconds = [row["seconds"] for row in caught]
        whole = [row["whole"] for row in caught if "whole" in row]
        body.append(
            (
                dtype,
                share(caught, mine),
                f"{statistics.median(first):g}" if first else "-",
                str(max(first, default="-")),
                f"{statistics.median(seconds):.2f}" if seconds else "-",
                f"{max(seconds):.2f}" if seconds else "-",
                share([r for r in mine if r["named"]], [r for r in mine if r["nameable"]]),
                share([r for r in mine if r["minimal"]], [r for r in mine if r["stated"]]),
                f"{statistics.median(whole):.2f}" if whole else "-",
            )
        )
    missing = [d for d in ("float32", "float16", "bfloat16") if d not in dtypes_of(rows)]
    found = table(head, body) if body else []
    return found + (["", f"Not run: {', '.join(missing)}."] if missing else [])


def share(some: Rows, of: Rows) -> str:
    """``2 of 3 (66.7%)``; of ``some`` only those count that are in ``of``."""
    if not of:
        return "-"
    counted = [row for row in some if row in of]
    return f"{len(counted)} of {len(of)} ({len(counted) / len(of):.1%})"


def _exceptions(rows: Rows) -> Iterator[str]:
    wrong = [row for row in rows if not row["caught"] or (row["nameable"] and not row["named"])]
    larger = [row for row in rows if row["caught"] and row["stated"] and not row["minimal"]]
    yield "### Missed, named otherwise, larger"
    yield ""
    listed: dict[tuple[str, str], list[str]] = {}
    for row in wrong:
        what = "missed" if not row["caught"] else f"named {row['diagnosis']}"
        listed.setdefault((row["kernel"], what), []).append(f"{row['dtype']} ({row['laws']})")
    for row in larger:
        listed.setdefault((row["kernel"], "larger"), []).append(f"{row['dtype']} ({row['laws']})")
    if not listed:
        yield "None."
        yield ""
        return
    order = sorted(listed, key=lambda one: (not one[1].startswith("missed"), one[1], one[0]))
    yield from table(
        ("kernel", "what", "where (laws)"),
        [(f"`{name}`", what, ", ".join(listed[name, what])) for name, what in order],
    )
    yield ""
