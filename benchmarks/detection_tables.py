"""The tables of docs/evidence/detection.md about rules and floors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

Rows = Sequence[dict[str, Any]]

ORDER: Final = ("float32", "float16", "bfloat16", "float64")
RULES: Final = {
    "assert_close": "`torch.testing.assert_close`, its defaults",
    "twice": "largest error at most twice that of eager attention in the same dtype",
    "1e-2": "every error at most 1e-2",
    "1e-3": "every error at most 1e-3",
    "98%": "98% of the elements within 1e-2 (float32: 1e-3), absolute and relative",
    "cosine": "cosine at least 0.999",
    "correlation": "Pearson's correlation at least 0.99",
    "bound": "the bound of this package, on the same outputs",
}
GRID_ENDS: Final = 1.001e-8
SUITES: Final = {"usual": "usual shapes", "drawn": "cases of the search"}
ABOUT_RULES: Final = """\
Each rule compares an output with float64 attention rounded to the dtype, which is more exact than
what those suites compare with. "Usual shapes" are the 14 of `benchmarks/usual_suite.py`, standard
normal numbers, modelled on the tests of FlashAttention (odd lengths, grouped heads, causal, local,
ALiBi, softcap), torch's SDPA (masks, a scale) and serving engines (decoding, used lengths, sinks);
one list for every rule, with more options than any one of those suites has. "Cases of the search"
are the 120 that a check draws for the kernel, each called once. Where one declares gradients, they
are compared by the same rule. Rows outside the domain of the declared profile do not count. The
check calls a kernel in other ways too (twice, with other strides, with NaN in hidden slots), which
no comparison of one output sees."""
ABOUT_ALARMS: Final = """\
Right kernels at the same shapes: the twelve torch and numpy backends, and the kernels of
`tests/broken/attention_green.py`. Rejected runs, and in brackets how many of the kernels have at
least one. The bound is 0 by design here: on this sample it shows nothing that the longer
[count of false alarms](false_alarms.md) does not."""
ABOUT_FLOOR: Final = """\
An error of a chosen size is planted in a right kernel, and the smallest size that is still seen is
found by bisection, on a grid of twelve steps a decade. *scale*: the scores are too large by that
share. *softcap*: the capped scores are. *one probability*: that of the middle key is, after the
division. *one dropped key*: each row loses its heaviest key of at most that weight. The kernels
keep everything in float32 (`f32`), or round the probabilities (`flash`), or scores and
probabilities (`eager`), and declare so. For a rule, a case counts only where it accepts the right
kernel; in brackets, on how many cases it does not. Never: it accepts an error of size 1.

Of a check, all laws on its 120 cases. A probe on the identity card measures more finely than that,
but a card describes and does not condemn."""


def dtypes_of(rows: Rows) -> list[str]:
    """The dtypes of ``rows``, float32 first."""
    there = {row["dtype"] for row in rows}
    return [dtype for dtype in ORDER if dtype in there]


def table(head: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table."""
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return lines + [f"| {' | '.join(cells)} |" for cells in body]


def part_head(title: str, command: str, made_with: Sequence[str], about: str) -> Iterator[str]:
    """What stands above the tables of one part."""
    yield f"## {title}"
    yield ""
    yield f"`benchmarks.detection {command}`."
    yield ""
    yield from made_with
    yield about
    yield ""


def rule_lines(part: dict[str, Any], made_with: Sequence[str]) -> Iterator[str]:
    """The broken kernels that each rule catches, and the right ones that it rejects."""
    rows = part.get("rows", [])
    yield from part_head(
        "The rules in use elsewhere", "rules", made_with, ABOUT_RULES if rows else "Not run."
    )
    if not rows:
        return
    dtypes = dtypes_of(rows)
    head = ["rule", *(f"{dtype}, {SUITES[suite]}" for dtype in dtypes for suite in SUITES)]
    yield "### Broken kernels caught"
    yield ""
    yield "Caught: rejected on a case on which the rule accepts the kernel without the mistake. In"
    yield "brackets: rejected on any case, right or wrong."
    yield ""
    yield from table(head, [_caught(rule, rows, dtypes) for rule in RULES])
    yield ""
    yield "### Right kernels rejected"
    yield ""
    yield ABOUT_ALARMS
    yield ""
    yield from table(head, [_alarms(rule, rows, dtypes) for rule in RULES])
    yield ""


def _part(rows: Rows, kind: str, dtype: str, suite: str) -> Rows:
    wanted = (kind, dtype, suite)
    return [row for row in rows if (row["kind"], row["dtype"], row["suite"]) == wanted]


def _caught(rule: str, rows: Rows, dtypes: Sequence[str]) -> list[str]:
    cells = [RULES[rule]]
    for dtype in dtypes:
        for suite in SUITES:
            mine = _part(rows, "kernel", dtype, suite)
            told = sum(rule in row["told"] for row in mine)
            rejected = sum(rule in row["first"] for row in mine)
            cells.append(f"{told} ({rejected}) of {len(mine)}" if mine else "-")
    return cells


def _alarms(rule: str, rows: Rows, dtypes: Sequence[str]) -> list[str]:
    cells = [RULES[rule]]
    for dtype in dtypes:
        for suite in SUITES:
            mine = _part(rows, "green", dtype, suite)
            alarms, runs = (
                sum(row["alarms"][rule] for row in mine),
                sum(row["cases"] for row in mine),
            )
            some = sum(row["alarms"][rule] > 0 for row in mine)
            cells.append(f"{alarms} of {runs} ({some} of {len(mine)})" if runs else "-")
    return cells


def floor_lines(part: dict[str, Any], made_with: Sequence[str]) -> Iterator[str]:
    """The smallest error of each kind that a check and each rule see."""
    rows = part.get("rows", [])
    yield from part_head(
        "The detection floor", "floor", made_with, ABOUT_FLOOR if rows else "Not run."
    )
    if not rows:
        return
    errors = list(dict.fromkeys(row["error"] for row in rows))
    for dtype in dtypes_of(rows):
        for profile in dict.fromkeys(row["profile"] for row in rows if row["dtype"] == dtype):
            mine = [row for row in rows if (row["dtype"], row["profile"]) == (dtype, profile)]
            yield f"### {dtype}, {profile}"
            yield ""
            yield from table(("seen by", "cases", *errors), list(_floors(mine, errors)))
            yield ""


def _floors(rows: Rows, errors: Sequence[str]) -> Iterator[list[str]]:
    by = {(row["by"], row["error"]): row for row in rows}
    cells = ["**a check**, all laws", SUITES["drawn"]]
    for error in errors:
        row = by.get(("check", error))
        cells.append("not run" if row is None else _size(row["size"]))
    yield cells
    for rule, says in RULES.items():
        for suite, words in SUITES.items():
            cells = [says, words]
            for error in errors:
                row = by.get((suite, error))
                cells.append("not run" if row is None else _of_rule(row, rule))
            yield cells


def _of_rule(row: dict[str, Any], rule: str) -> str:
    spared = row["spared"][rule]
    return _size(row["floors"][rule]) + (f" ({spared})" if spared else "")


def _size(found: float | None) -> str:
    if found is None:
        return "never"
    return f"{found:.1e}" + (" or less" if found <= GRID_ENDS else "")
