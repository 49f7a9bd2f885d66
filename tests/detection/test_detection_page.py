"""The page of the score holds what stands in its record, and says what was not run."""

from __future__ import annotations

import copy
import re
from types import SimpleNamespace

import pytest

from benchmarks.detection import forget
from benchmarks.detection_page import page
from benchmarks.detection_record import RECORD, part_of, read, write

ABOUT = {
    "commit": "abc",
    "day": "2026-01-01",
    "python": "3.11",
    "packages": {"torch": "2.13.0"},
    "processor": "one",
    "seed": 0,
}


def found(name, *, caught=True, **changes):
    row = {
        "kernel": name,
        "dtype": "float32",
        "laws": "all",
        "caught": caught,
        "first": 3 if caught else None,
        "seconds": 1.0,
        "named": caught,
        "nameable": True,
        "minimal": caught,
        "stated": True,
        "diagnosis": "scale" if caught else None,
    }
    return row | changes


def test_an_empty_record_says_that_nothing_was_run():
    text = page({})
    assert text.count("Not run") == 6
    assert not re.search(r"\d of \d", text)


def test_a_sample_of_the_kernels_is_said_to_be_one():
    run = ABOUT | {"laws": "all", "dtypes": ["float32"], "every": 6}
    text = page({"search": {"about": [run], "rows": [found("one")]}})
    assert "Seed 0, float32, --laws all on one kernel of 6, commit abc" in text
    plain = page({"search": {"about": [ABOUT], "rows": [found("one")]}})
    assert "one kernel of" not in plain


def test_the_second_set_has_a_table_of_its_own():
    rows = [found("one", laws="own"), found("two", laws="own", named=False, diagnosis="window")]
    text = page({"second": {"about": [ABOUT], "rows": rows}})
    _, _, second = text.partition("## The second set")
    assert "2 edits of a line or two" in second
    assert "| float32 | 2 of 2 (100.0%) | 3 | 3 | 1.00 | 1.00 | 1 of 2 (50.0%) |" in second
    assert "| `two` | named window | float32 (own) |" in second


def test_figures_are_those_of_the_rows():
    rows = [
        found("one", first=1, seconds=0.5),
        found("two", first=4, seconds=2.5, named=False, diagnosis="mask-semantics"),
        found("three", minimal=False),
        found("lost", caught=False, seconds=9.0),
    ]
    text = page({"search": {"about": [ABOUT], "rows": rows}})
    assert (
        "| float32 | 3 of 4 (75.0%) | 3 | 4 | 1.00 | 2.50 | 2 of 4 (50.0%) | 2 of 4 (50.0%) |"
        in (text)
    )
    assert "| `lost` | missed | float32 (all) |" in text
    assert "| `two` | named mask-semantics | float32 (all) |" in text
    assert "| `three` | larger | float32 (all) |" in text
    assert "Not run: float16, bfloat16." in text
    assert "commit abc" in text


def test_a_fresh_search_forgets_the_runs_of_the_rows_that_it_drops():
    runs = [ABOUT | {"laws": "own", "dtypes": ["float32"]}, ABOUT | {"laws": "own", "dtypes": []}]
    rows = [found("one", laws="own"), found("one", laws="all")]
    record = {"search": {"about": [*runs, ABOUT | {"laws": "all"}], "rows": rows}}
    asked = SimpleNamespace(part="search", set="first", laws="own", dtype=["float32"])
    forget(record, asked)
    assert record["search"]["rows"] == rows[1:]
    assert record["search"]["about"] == [runs[1], ABOUT | {"laws": "all"}]


def test_the_committed_record_is_written_as_it_is_read(tmp_path):
    record = read()
    assert record["search"]["rows"]
    copied = tmp_path / "detection.json"
    write(record, copied)
    assert copied.read_text("utf-8") == RECORD.read_text("utf-8")


def test_a_changed_row_changes_the_page():
    record = read()
    changed = copy.deepcopy(record)
    changed["search"]["rows"][0]["caught"] = not changed["search"]["rows"][0]["caught"]
    assert page(changed) != page(record)


@pytest.mark.parametrize("part", ["search", "rules", "floor"])
def test_a_run_says_where_it_ran(part):
    record = {}
    rows = part_of(record, part, seed=5)
    assert rows == []
    (about,) = record[part]["about"]
    assert about["seed"] == 5
    assert {"commit", "packages", "python", "processor"} <= set(about)
