"""Which changes of a table fail, and which are to be locked in."""

from __future__ import annotations

import pytest

from equivalence.tolerances.drift import drifts

from .conftest import entry, table

OLD = table({"a": {"float16": entry()}})


@pytest.mark.parametrize(
    ("changes", "looser", "said"),
    [
        ({"used": 0.51}, True, "a float16: uses 0.51 of its bound, was at most 0.5"),
        ({"used": 0.49}, False, "a float16: uses 0.49 of its bound, was at most 0.5"),
        ({"k": 2.1}, True, "a float16: errs by 2.1 u sum p|v|, was at most 2"),
        ({"atol": 1e-2}, True, "a float16: needs atol 0.01, was at most 1e-3"),
        ({"profile": "eager"}, True, "a float16: judged by profile eager, was flash"),
        ({"profile": "f32"}, False, "a float16: judged by profile f32, was flash"),
        ({"profile": "graph"}, True, "a float16: judged by profile graph, was flash"),
        ({"kind": "mla"}, True, "a float16: was of kind attention, is mla"),
        ({"k": None}, True, "a float16: k was 2.0, is None"),
    ],
)
def test_one_change_one_line(changes: dict[str, object], looser: bool, said: str) -> None:
    (found,) = drifts(OLD, table({"a": {"float16": entry(**changes)}}))
    assert (found.looser, found.text) == (looser, said)


def test_no_change_no_line() -> None:
    assert drifts(OLD, OLD) == []


def test_a_lost_dtype_fails_with_its_reason_and_a_new_one_does_not() -> None:
    new = table({"a": {"float32": entry()}})
    lost, added = drifts(OLD, new, absent={("a", "float16"): "it takes no float16"})
    assert (lost.looser, lost.text) == (True, "a float16: lost: it takes no float16")
    assert (added.looser, added.text) == (False, "a float32: not in the table yet; --write adds it")


def test_what_else_changed_is_said_beside_a_loosening_only() -> None:
    elsewhere = {"python": "3.11", "packages": {"torch": "2.13"}}
    worse = table({"a": {"float16": entry(used=0.9)}}, environment=elsewhere)
    assert drifts(OLD, worse)[-1].text == "measured elsewhere: torch 2.9 -> 2.13"
    assert drifts(OLD, table({"a": {"float16": entry()}}, environment=elsewhere)) == []
