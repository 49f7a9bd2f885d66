"""Cases that are looked at before anything is drawn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from equivalence.kinds import Kind
from equivalence.request import Request


def planned_cases(kind: Kind, domain: Any, request: Request, seed: int) -> Iterator[Any]:
    """The cases that were asked for, then those that cover every two options; in one dtype."""
    for case in request.first:
        if _fits(case, kind, domain):
            yield case
    if request.pairs and kind.pairs is not None:
        yield from kind.pairs(domain, seed)


def _fits(case: Any, kind: Kind, domain: Any) -> bool:
    known = isinstance(case, kind.case_type) and getattr(case, "dtype", "") in domain.dtypes
    return known and (kind.admits is None or kind.admits(domain, case))
