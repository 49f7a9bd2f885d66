"""The smallest planted error that a check, or a rule, still sees: bisection on a fixed grid.

Sizes are 10 ** (-step / 12). A kernel with an error of every size up to 1 is made from one that is
right; for a rule, a case counts only where it accepts the right one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from benchmarks.comparison_rules import RULES
from benchmarks.planted_errors import ERRORS, PROFILES, planted
from benchmarks.rule_counts import SUITES, Suites, eager_target, rejections
from equivalence.engine import check_target
from equivalence.request import Request

STEPS_A_DECADE: Final = 12
SMALLEST: Final = 8 * STEPS_A_DECADE  # 1e-8
QUICKEST: Final = ("agrees-with-float64", "options-are-not-ignored")


def size_at(step: int) -> float:
    """The size of an error ``step`` steps below 1."""
    return float(10.0 ** (-step / STEPS_A_DECADE))


def last_seen(seen: Callable[[int], bool], smallest: int = SMALLEST) -> int | None:
    """The largest step at which ``seen`` holds, if it holds from 0 to some step; None if nowhere.

    ``seen`` is taken to be monotone.
    """
    if not seen(0):
        return None
    low, high = 0, smallest + 1  # seen at low, not at high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if seen(middle) else (low, middle)
    return low


def laws_broken(
    error: str, size: float, profile: str, dtype: str, seed: int, laws: tuple[str, ...] | None
) -> tuple[str, ...]:
    """The laws that a default check finds broken; () where it holds the kernel right."""
    request = Request(dtypes=(dtype,), seed=seed, shrink=False, laws=laws)
    result = check_target(planted(error, size, profile), request)
    return tuple(law.law for law in result.laws if law.held is False)


def floor_of_check(error: str, profile: str, dtype: str, seed: int) -> dict[str, Any]:
    """The floor of all laws together.

    Some laws are bisected alone, which is quicker; then all of them look one step below, and those
    that still see the error join the others.
    """
    chosen: tuple[str, ...] = QUICKEST
    while True:

        def seen(step: int, laws: tuple[str, ...] = chosen) -> bool:
            return bool(laws_broken(error, size_at(step), profile, dtype, seed, laws))

        found = last_seen(seen)
        step = -1 if found is None else found
        below = 0.0 if step == SMALLEST else size_at(step + 1)
        more = laws_broken(error, below, profile, dtype, seed, None)
        if not below:
            assert not more, f"the right kernel is rejected by {more}"
        if not below or not set(more) - set(chosen):
            return {"size": None if step < 0 else size_at(step)}
        chosen = tuple({*chosen, *more})


def floors_of_rules(
    error: str, profile: str, dtype: str, suites: Suites, suite: str
) -> dict[str, Any]:
    """For each rule the smallest size, None where it sees none, on cases where it accepts size 0.

    spared: on how many cases it does not.
    """
    right = planted(error, 0.0, profile)
    met: dict[int, set[str]] = {}

    def rejecting(step: int) -> set[str]:
        if step not in met:
            target = planted(error, size_at(step), profile)
            met[step] = set(rejections(target, suite, dtype, suites, right=right).told)
        return met[step]

    floors: dict[str, float | None] = {}
    for name in (rule.name for rule in RULES):
        step = last_seen(partial(_holds, name, rejecting))
        floors[name] = None if step is None else size_at(step)
    return {"floors": floors, "spared": rejections(right, suite, dtype, suites).count}


def _holds(name: str, rejecting: Callable[[int], set[str]], step: int) -> bool:
    return name in rejecting(step)


def run(
    rows: list[dict[str, Any]], dtypes: Sequence[str], seed: int, keep: Callable[[], None]
) -> None:
    """Add the rows that are not there yet."""
    done = {(row["error"], row["dtype"], row["profile"], row["by"]) for row in rows}
    for dtype in dtypes:
        suites = Suites(seed=seed, eager=eager_target())
        for profile in PROFILES[dtype]:
            for error in ERRORS:
                about = {"error": error, "dtype": dtype, "profile": profile}
                for suite in SUITES:
                    if (error, dtype, profile, suite) not in done:
                        found = floors_of_rules(error, profile, dtype, suites, suite)
                        rows.append({**about, "by": suite, **found})
                        keep()
                        print(rows[-1], flush=True)
                if (error, dtype, profile, "check") not in done:
                    found = floor_of_check(error, profile, dtype, seed)
                    rows.append({**about, "by": "check", **found})
                    keep()
                    print(rows[-1], flush=True)
