"""The second set, on which the names are measured: all are caught, and nine in ten are named."""

from __future__ import annotations

import pytest

from equivalence.results import DIAGNOSES
from tests.broken.judging import judge
from tests.broken.second_set import SECOND


def test_each_is_one_edit_with_a_name_of_its_own():
    names = [entry.name for entry in SECOND]
    assert len(names) == len(set(names)) >= 40
    assert all(set(entry.diagnoses) <= set(DIAGNOSES) for entry in SECOND)


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_nine_in_ten_are_caught_and_named(dtype):
    found = [judge(entry, dtype) for entry in SECOND if dtype in entry.dtypes]
    caught = [one for one in found if one.caught]
    named = [one.entry.name for one in caught if one.named]
    assert len(caught) >= 0.95 * len(found)
    assert len(named) >= 0.9 * len(found)
