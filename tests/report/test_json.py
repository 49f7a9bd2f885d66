"""The JSON contract: schema 1, strict, and read back as it was written."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import pytest

from equivalence.errors import InvalidRequest
from equivalence.replay import parse_case
from equivalence.report import schema
from equivalence.report.json import from_json, plain, report_of, to_json
from equivalence.report.schema import AxisJson, DisagreementJson
from equivalence.results import DIAGNOSES, Failure, RunResult, TargetResult

TARGET_KEYS = {
    "target", "kind", "held", "profile", "laws", "tolerance", "not_exercised", "timings",
}  # fmt: skip
LAW_KEYS = {"name", "held", "examples", "vacuous", "refused", "counterexample", "diagnosis"}
COUNTEREXAMPLE_KEYS = {"case", "replay", "index", "got", "expected", "used"}


def strictly(text: str) -> Any:
    def refuse(constant: str) -> NoReturn:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_has_the_keys_of_the_contract(run: RunResult) -> None:
    report = strictly(to_json(run))
    assert report["schema"] == 1
    assert report["environment"] == {"python": "3.11.9"}
    assert [target["held"] for target in report["targets"]] == [True, False]
    for target in report["targets"]:
        assert target.keys() >= TARGET_KEYS
        for law in target["laws"]:
            assert law.keys() >= LAW_KEYS
            assert (law["held"] is False) == (law["counterexample"] is not None)
            assert (law["held"] is False) == (law["diagnosis"] is not None)
            if law["counterexample"]:
                assert law["counterexample"].keys() >= COUNTEREXAMPLE_KEYS
                assert law["diagnosis"]["kind"] in DIAGNOSES
    assert [law["held"] for law in report["targets"][0]["laws"]] == [True, True, None]


def test_law_stands_once_and_adds_up_its_dtypes(run: RunResult) -> None:
    law = strictly(to_json(run))["targets"][0]["laws"][0]
    assert (law["name"], law["examples"], law["vacuous"], law["refused"]) == (
        "agrees-with-float64", 2211, 12, 3,
    )  # fmt: skip
    assert [part["dtype"] for part in law["dtypes"]] == ["float32", "bfloat16"]


def test_case_reads_back(run: RunResult, failure: Failure) -> None:
    law = strictly(to_json(run))["targets"][1]["laws"][0]
    assert parse_case(law["counterexample"]["case"]) == failure.case
    assert law["counterexample"]["index"] == [0, 2, 0, 17]


def test_law_broken_by_a_fault_told_elsewhere_still_has_its_diagnosis(run: RunResult) -> None:
    causality = strictly(to_json(run))["targets"][1]["laws"][1]
    assert causality["diagnosis"]["kind"] == "head-mapping"


def test_reads_back_as_written(run: RunResult) -> None:
    assert from_json(to_json(run)) == report_of(run)


def test_not_finite_numbers_are_strings(broken: TargetResult, failure: Failure) -> None:
    trouble = replace(failure.trouble, got=math.nan, expected=-math.inf, used=math.inf)
    broken.failures = [replace(failure, trouble=trouble)]
    broken.timings = {"search": math.nan}
    run = RunResult(targets=[broken], environment={"nested": {"load": [math.inf]}})
    text = to_json(run)
    counterexample = strictly(text)["targets"][0]["laws"][0]["counterexample"]
    assert (counterexample["got"], counterexample["expected"], counterexample["used"]) == (
        "NaN", "-Infinity", "Infinity",
    )  # fmt: skip
    assert strictly(text)["environment"] == {"nested": {"load": ["Infinity"]}}
    assert math.isnan(plain(from_json(text).targets[0].timings["search"]))


def test_the_map_of_meanings_is_written(run: RunResult) -> None:
    axis = AxisJson(axis="scale", asks="?", case="AttentionCase()", answers={"a": "1"}, refused={})
    apart = DisagreementJson(first="a", second="b", questions=[1], case="AttentionCase()")
    report = from_json(to_json(run, axes=[axis], disagreements=[apart]))
    assert (report.axes, report.disagreements) == ([axis], [apart])


def test_every_key_is_described() -> None:
    page = (Path(__file__).parents[2] / "docs" / "json.md").read_text("utf-8")
    structs = [one for one in vars(schema).values() if isinstance(one, type(msgspec.Struct))]
    keys = {key for one in structs for key in one.__struct_fields__}
    assert len(keys) > 60
    assert sorted(key for key in keys if f"`{key}`" not in page) == []


def test_held_is_null_when_nothing_ran() -> None:
    nothing = TargetResult(target="x", kind="attention", profile="f32", trouble="it hung")
    report = strictly(to_json(RunResult(targets=[nothing])))
    assert report["targets"][0]["held"] is None
    assert report["exit_code"] == 1


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"schema": 1}', '{"schema": 2, "targets": [], "environment": {}}']
)
def test_what_is_no_report_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^baseline\.json ") as refusal:
        from_json(text, source="baseline.json")
    assert "\n" not in str(refusal.value)
