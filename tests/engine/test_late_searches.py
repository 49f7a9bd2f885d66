"""A search whose time is up still looks for two cases that can be judged, and not for ever."""

from __future__ import annotations

import time

import pytest
from hypothesis import strategies as st

from equivalence.search import FEWEST, MOST_LATE, explore


def looked_at(judged):
    """The cases that a late search looks at, of which ``judged`` says whether it was judged."""
    seen = []

    def visit(case):
        seen.append(case)
        return judged(len(seen))

    late = time.monotonic() - 1.0
    explore(st.integers(0, 10**6), visit, examples=50, seed=0, deadline=late)
    return len(seen)


@pytest.mark.parametrize(
    ("judged", "count"),
    [
        (lambda number: None, FEWEST),
        (lambda number: True, FEWEST),
        (lambda number: number > 3, 3 + FEWEST),
        (lambda number: False, MOST_LATE),
    ],
)
def test_a_late_search_looks_on_until_something_was_judged(judged, count):
    assert looked_at(judged) == count
