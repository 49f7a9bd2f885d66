"""Every view is a function of the merge, and the merge of the set of reports."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from equivalence.report.annotations import error_commands
from equivalence.report.json import from_json
from equivalence.report.markdown import markdown
from equivalence.report.merging import merged
from equivalence.report.page import page
from equivalence.report.schema import ReportJson

from .conftest import broken, law, report, reports, target, text


def views(of: Sequence[ReportJson]) -> tuple[str, str, list[str]]:
    merge = merged(of)
    return page(merge), markdown(merge), list(error_commands(merge))


@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(st.lists(reports, min_size=1, max_size=3), st.randoms(use_true_random=False))
def test_order_and_repetition_do_not_matter(some, random):
    shuffled = [*some, *random.choices(some, k=2)]
    random.shuffle(shuffled)
    assert views(shuffled) == views(some)


def test_a_view_needs_no_more_than_the_text(example):
    assert views([from_json(text(example))]) == views([example])


def test_other_seeds_add_up_and_the_same_seed_does_not():
    one, two = report(target("it"), seed=1), report(target("it"), seed=2)
    (found,) = merged([one, one, two]).targets.values()
    row = found.laws["causality"].rows["float32"]
    assert (row.examples, row.vacuous, row.refused, row.used) == (200, 2, 4, 0.5)
    assert sum(row.histogram) == 200
    assert found.held is True


def test_one_broken_run_breaks_a_law_and_the_worst_is_kept():
    good = report(target("it", law("causality", used=0.25)), seed=1)
    worse = report(target("it", law("causality", used=0.75)), seed=2)
    bad = report(target("it", law("causality", held=False)), seed=3)
    (found,) = merged([good, worse]).targets.values()
    assert (found.held, found.laws["causality"].rows["float32"].used) == (True, 0.75)
    (found,) = merged([good, bad, worse]).targets.values()
    assert found.held is False


def test_a_fault_of_several_runs_is_told_once():
    merge = merged(report(broken("it"), seed=seed) for seed in range(5))
    (fault,) = merge.targets["it", "attention"].faults.values()
    assert (fault.kind, fault.laws, fault.dtypes) == (
        "head-mapping", {"agrees-with-float64"}, {"float32"},
    )  # fmt: skip
