"""Cases that are looked at before anything is drawn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from equivalence.kinds import Kind
from equivalence.request import Request

PAIRS_SHARE: Final = 3  # of so many examples, one may go to pairs of options unasked
ENOUGH: Final = 60  # of fewer examples none does: even two options need some twenty cases


def planned_cases(kind: Kind, domain: Any, request: Request, seed: int) -> Iterator[Any]:
    """The cases that were asked for, those that cover every two options, and the edges.

    All in one dtype.
    """
    for case in request.first:
        if _fits(case, kind, domain):
            yield case
    if kind.pairs is not None and (request.pairs or request.examples >= ENOUGH):
        covering = list(kind.pairs(domain, seed))
        if request.pairs or len(covering) * PAIRS_SHARE <= request.examples:
            yield from covering
    if kind.edges is not None and request.examples >= ENOUGH:
        yield from kind.edges(domain, seed)


def _fits(case: Any, kind: Kind, domain: Any) -> bool:
    known = isinstance(case, kind.case_type) and getattr(case, "dtype", "") in domain.dtypes
    return known and (kind.admits is None or kind.admits(domain, case))
