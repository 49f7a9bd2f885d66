"""The merge of shards: without order, and a report that is given twice adds nothing."""

from __future__ import annotations

import math
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from equivalence.gate.baseline import baseline_of, read_baseline, to_text
from equivalence.gate.findings import findings_of, read_findings
from equivalence.gate.rules import compare
from equivalence.report.schema import ReportJson

from .conftest import found, law, report, reports, target, text

few = settings(max_examples=20, deadline=None)


@few
@given(st.lists(reports, min_size=1, max_size=4), st.randoms())
def test_any_order_and_any_repetition(shards: list[ReportJson], order: object) -> None:
    def merged(parts: list[ReportJson]) -> str:
        whole = findings_of(parts[0])
        for part in parts[1:]:
            whole |= findings_of(part)
        return to_text(baseline_of(whole))

    again = [*shards, *shards[:2]]
    order.shuffle(again)  # type: ignore[attr-defined]
    assert merged(again) == merged(shards)


@few
@given(reports, reports, reports)
def test_grouping_does_not_matter(a: ReportJson, b: ReportJson, c: ReportJson) -> None:
    one, two, three = map(findings_of, (a, b, c))
    assert to_text(baseline_of((one | two) | three)) == to_text(baseline_of(one | (two | three)))
    assert to_text(baseline_of(one | one)) == to_text(baseline_of(one))


@settings(few, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(reports)
def test_a_baseline_is_read_back(tmp_path: Path, run: ReportJson) -> None:
    whole = baseline_of(findings_of(run))
    (tmp_path / "baseline.json").write_text(to_text(whole))
    assert read_baseline(tmp_path / "baseline.json") == whole


@few
@given(st.lists(reports, min_size=1, max_size=3))
def test_nothing_is_looser_than_itself(shards: list[ReportJson]) -> None:
    whole = findings_of(shards[0])
    for shard in shards[1:]:
        whole |= findings_of(shard)
    assert compare(baseline_of(whole), whole) == []


def test_shards_with_other_seeds_add_up_and_equal_ones_do_not() -> None:
    one = found(target("it", law(examples=100, refused=3, used=0.4)), seed=0)
    two = found(target("it", law(examples=50, held=False, used=0.61234)), seed=1)
    state = baseline_of(one | two | one).targets["it"].laws["causality"]["float32"]
    assert (state.held, state.examples, state.refused, state.used) == (False, 150, 3, 0.62)
    assert len(baseline_of(one | two).runs) == 2


def test_not_a_number_hides_nothing() -> None:
    one, two = found(target(graph={"operations": "NaN"})), found(target(graph={"operations": 2.0}))
    assert math.isnan(float(baseline_of(one | two).targets["it"].graph["operations"]))


def test_files_are_read(tmp_path: Path) -> None:
    for seed in range(3):
        (tmp_path / f"{seed}.json").write_text(text(report(target(), seed=seed)))
    paths = sorted(tmp_path.glob("*.json"))
    assert baseline_of(read_findings(paths)) == baseline_of(read_findings([*paths[::-1], paths[0]]))
