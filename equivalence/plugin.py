"""The pytest plugin: a summary of what the equivalence items of a run really checked.

It imports nothing heavy, sets no Hypothesis profile, and is not needed by ``conformance``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

PREFIX = "equivalence."


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--equivalence-profile`` and ``--timings``."""
    group = parser.getgroup("equivalence")
    group.addoption(
        "--equivalence-profile",
        metavar="NAME",
        default=None,
        help="how hard conformance tests look: dev, ci or nightly (no Hypothesis profile changes)",
    )
    timed: dict[str, Any] = {
        "action": "store_true",
        "default": False,
        "dest": "equivalence_timings",
        "help": "record the times of a kernel's calls, by law; nothing is asserted on them",
    }
    group.addoption("--equivalence-timings", **timed)
    with contextlib.suppress(ValueError):  # another plugin has the short name
        group.addoption("--timings", **timed)


def pytest_terminal_summary(terminalreporter: Any, exitstatus: int, config: pytest.Config) -> None:
    """Print checks, shares of vacuous and refused cases, and the worst part of a bound used."""
    found = [
        properties
        for reports in terminalreporter.stats.values()
        for report in reports
        if (properties := _properties(getattr(report, "user_properties", ())))
        and getattr(report, "when", "") == "call"
    ]
    if not found:
        return
    checks = sum(int(p.get("checks", 0)) for p in found)
    vacuous = sum(int(p.get("vacuous", 0)) for p in found)
    refused = sum(int(p.get("refused", 0)) for p in found)
    used = max(float(p.get("used", 0.0)) for p in found)
    judged = max(1, checks + vacuous)
    terminalreporter.write_sep("-", "equivalence")
    terminalreporter.write_line(
        f"{checks:,} checks in {len(found)} items, worst {used:.2f} of its bound; "
        f"{vacuous / judged:.1%} vacuous, {refused:,} refused"
    )
    shares = [_shares(str(p["shares"])) for p in found if "shares" in p]
    for text in sorted(str(p["timing"]) for p in found if "timing" in p):
        terminalreporter.write_line(f"time of a call: {text}")
    if shares:
        kv_len = sorted(share["median_kv_len"] for share in shares)[len(shares) // 2]
        cases = max(1.0, sum(share["cases"] for share in shares))
        grouped, real = (
            sum(share[name] * share["cases"] for share in shares) / cases
            for name in ("grouped", "real_head_dim")
        )
        terminalreporter.write_line(
            f"median kv_len {kv_len:g}; {grouped:.0%} of cases with several grouped heads, "
            f"{real:.0%} with the head_dim of a real model"
        )


def _properties(properties: Iterable[tuple[str, object]]) -> dict[str, Any]:
    return {
        name.removeprefix(PREFIX): value for name, value in properties if name.startswith(PREFIX)
    }


def _shares(text: str) -> dict[str, float]:
    return {name: float(value) for name, _, value in (p.partition("=") for p in text.split())}
