"""One failure in words: who, where, got, expected, allowed, which case, how to replay."""

from __future__ import annotations

import math
from typing import Final

from equivalence.replay import case_text
from equivalence.report.numbers import count, short, ulps, value
from equivalence.results import Failure
from equivalence.verdict import Trouble

LABEL: Final = 10
LEFT: Final = 24


def headline(target: str, trouble: Trouble) -> str:
    """``OutsideBound: torch.sdpa_gqa disagrees with float64 attention at output[0, 2, 0, 17]``."""
    kind = "".join(part.capitalize() for part in trouble.kind.split("-"))
    joint = " " if trouble.text.startswith("disagrees ") else ": "
    where = f" at output{list(trouble.index)}" if trouble.index and "[" not in trouble.text else ""
    return f"{kind}: {target}{joint}{trouble.text}{where}"


def trouble_lines(target: str, trouble: Trouble, dtype: str) -> list[str]:
    """What was got, expected and allowed, and how much of the output is outside."""
    lines = [headline(target, trouble), *_numbers(trouble, dtype)]
    if trouble.total:
        where = f", {trouble.where}" if trouble.where else ""
        share = f"{count(trouble.outside)} of {count(trouble.total)} elements"
        lines.append(fact_line("outside", share + where))
    elif trouble.where:
        lines.append(fact_line("where", trouble.where))
    return lines


def failure_lines(target: str, failure: Failure) -> list[str]:
    """The whole block, one line a fact; facts that the law does not know are left out."""
    lines = trouble_lines(target, failure.trouble, failure.dtype)
    if "float64 attention" not in failure.trouble.text:
        lines.append(fact_line("law", failure.law))
    lines.append(fact_line("cause", f"{failure.diagnosis.kind}: {failure.diagnosis.text}"))
    lines.append(fact_line("case", case_text(failure.case)))
    lines.append(fact_line("replay", failure.replay))
    if failure.script:
        lines.append(fact_line("script", failure.script))
    return lines


def fact_line(label: str, text: str) -> str:
    """``  label     text``."""
    return f"  {label:<{LABEL}}{text}"


def _pair(label: str, text: str, label_right: str, text_right: str) -> str:
    return f"  {label:<{LABEL}}{text:<{LEFT}}{label_right:<{LABEL}}{text_right}"


def _numbers(trouble: Trouble, dtype: str) -> list[str]:
    lines = []
    if trouble.got is not None and trouble.expected is not None:
        got = value(trouble.got, dtype, trouble.expected)
        expected = value(trouble.expected, dtype, trouble.got)
        lines.append(_pair("got", f"{got}  ({dtype})  ", "expected", expected))
    elif trouble.got is not None:
        lines.append(fact_line("got", f"{value(trouble.got, dtype)}  ({dtype})"))
    if trouble.error is not None and trouble.allowed is not None:
        lines.append(_pair("error", _error(trouble, dtype) + "  ", "allowed", _allowed(trouble)))
    return lines


def _error(trouble: Trouble, dtype: str) -> str:
    assert trouble.error is not None
    distance = None if trouble.expected is None else ulps(trouble.error, trouble.expected, dtype)
    if distance is None:
        return short(trouble.error)
    return f"{short(trouble.error)}, {_ulp_text(distance)} ulp"


def _ulp_text(distance: float) -> str:
    return f"{distance:.1f}" if distance < 1000 else short(distance)


def _allowed(trouble: Trouble) -> str:
    assert trouble.allowed is not None
    facts = []
    if trouble.used is not None:
        if math.isfinite(trouble.used):
            percent = 100 * trouble.used
            facts.append(f"{percent:,.0f}% used" if percent < 1e6 else f"{short(percent)}% used")
        else:
            facts.append("not finite" if not _finite(trouble.got) else "no error is allowed")
    if trouble.profile:
        facts.append(f"profile {trouble.profile}")
    return short(trouble.allowed) + (f"  ({', '.join(facts)})" if facts else "")


def _finite(number: float | None) -> bool:
    return number is None or math.isfinite(number)
