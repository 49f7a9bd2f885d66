"""Every broken attention kernel is caught by a default search, shrunk and named."""

from __future__ import annotations

import pytest
import torch

from equivalence.calling import LocalTarget
from equivalence.domain import Domain
from equivalence.laws import law_named
from equivalence.subject import Subject
from tests.broken.attention_green import GREEN
from tests.broken.attention_kernels import COLLECTION
from tests.broken.judging import judge

torch.set_num_threads(1)
# What a search does not bring down to the stated case, or names otherwise, and why.
NOT_MINIMAL: dict[str, str] = {}
NOT_NAMED = {}


def first_dtype(entry):
    return "float32" if "float32" in entry.dtypes else entry.dtypes[0]


def marks(entry, dtype):
    """Each reported bug runs by default in one dtype; the others, and what is ours, by night."""
    by_day = dtype == first_dtype(entry) and (entry.rows or entry.name == "two_faults")
    return () if by_day else pytest.mark.nightly


RUNS = [
    pytest.param(entry, dtype, marks=marks(entry, dtype))
    for entry in COLLECTION
    for dtype in entry.dtypes
]


def name_of(value):
    return value if isinstance(value, str) else value.name


@pytest.mark.parametrize(("entry", "dtype"), RUNS, ids=name_of)
def test_the_mistake_is_caught_shrunk_and_named(entry, dtype, record_property):
    judged = judge(entry, dtype)
    record_property("seconds", judged.seconds)
    assert judged.caught, "not seen in the examples of a default run"
    report = [(f.case, f.diagnosis) for f in judged.failures]
    if dtype != first_dtype(entry):
        return  # the smallest cases are stated, and the names judged, in one dtype
    assert judged.minimal is (entry.name not in NOT_MINIMAL), report
    assert judged.named is (entry.name not in NOT_NAMED), report


def test_few_are_larger_or_named_otherwise():
    assert len(NOT_MINIMAL) <= 0.05 * len(COLLECTION)
    assert len(NOT_NAMED) <= 0.1 * len(COLLECTION)


def test_names_are_unique():
    names = [entry.name for entry in (*COLLECTION, *GREEN)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("entry", [e for e in COLLECTION if e.smallest is not None], ids=name_of)
def test_the_stated_case_shows_the_mistake_in_every_dtype(entry):
    target = LocalTarget.of(entry.kernel, name=entry.name, facts=entry.declared)
    for dtype in entry.dtypes:
        subject = Subject(target, Domain(dtypes=(dtype,)))
        case = entry.smallest_case(dtype)
        verdicts = [law_named(law).check(case, subject).status for law in entry.laws]
        assert "broken" in verdicts, case


@pytest.mark.parametrize("entry", GREEN, ids=name_of)
def test_what_is_right_stays_green(entry):
    dtypes = ("float32",) if entry.rows == () else ("float32", "bfloat16")
    for dtype in dtypes:
        result = judge(entry, dtype, laws=("agrees-with-float64", *entry.laws)).result
        assert result.held, [(f.case, f.trouble) for f in result.failures]


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("entry", GREEN, ids=name_of)
def test_what_is_right_keeps_every_law(entry, dtype):
    result = judge(entry, dtype, laws=()).result
    assert result.held, [(f.case, f.trouble) for f in result.failures]


def test_both_of_two_faults_are_reported():
    entry = next(entry for entry in COLLECTION if entry.name == "two_faults")
    kinds = {failure.diagnosis.kind for failure in judge(entry, "float32").failures}
    assert kinds >= {"head-mapping", "mask-semantics"}
