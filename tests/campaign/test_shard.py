"""One shard, done for real: JSON in, JSON out, the same wherever and whenever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from equivalence.campaign.ledger import LineJson
from equivalence.campaign.plan import Shard
from equivalence.campaign.shard import ONCE, run_shard
from equivalence.replay import parse_case


def done(**facts: Any) -> LineJson:
    known: dict[str, Any] = {
        "id": "0:it:0", "target": "kernels.py:right", "laws": ["agrees-with-float64"],
        "seed": 0, "examples": 5,
    }  # fmt: skip
    text = msgspec.json.encode(Shard(**{**known, **facts})).decode()
    return msgspec.json.decode(run_shard(text), type=LineJson)


def test_equal_shards_answer_alike(folder: Path) -> None:
    one, two = done(declare="profile=flash"), done(declare="profile=flash")
    assert one.report == two.report
    assert (one.found, one.lost, one.seconds > 0) == ([], "", True)
    (target,) = one.report.targets
    assert target.held is True
    worst = target.laws[0].dtypes[0].worst
    assert worst.startswith("equivalence replay kernels.py:right ")
    assert "--declare profile=flash" in worst
    assert one.report.environment["seed"] == 0


def test_a_search_leaves_the_case_as_it_was_drawn_and_an_explanation_shrinks_it(
    folder: Path,
) -> None:
    shard = {"target": "kernels.py:tiled", "laws": ["agrees-with-float64"], "examples": 8}
    found = done(**shard)
    (target,) = found.report.targets
    assert (target.held, target.failures) == (False, [])
    assert target.laws[0].counterexample is None
    (raw,) = found.found
    assert (raw.law, raw.dtype, raw.diagnosis) == ("agrees-with-float64", "float32", "head-mapping")
    parse_case(raw.case)
    line = done(
        **shard, id="explain", first=[raw.case], dtypes=["float32"], explains="head-mapping"
    )
    (failure,) = line.report.targets[0].failures
    assert failure.counterexample.case == "AttentionCase(num_kv_heads=2, group_size=2)"
    assert failure.diagnosis.kind == "head-mapping"
    assert (line.explains, line.report.targets[0].laws) == (["head-mapping"], [])


def test_what_does_not_fail_again_is_told_as_that(folder: Path) -> None:
    line = done(first=["AttentionCase()"], laws=["causality"], dtypes=["float32"], explains="scale")
    (failure,) = line.report.targets[0].failures
    assert failure.diagnosis.text == ONCE
    assert failure.counterexample.replay == (
        "equivalence replay kernels.py:right 'AttentionCase()' --law causality"
    )


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"target": "kernels.py:missing"}, "InvalidRequest: kernels.py:missing"),
        ({"first": ["__import__('os')"]}, "InvalidRequest: "),
        ({"laws": ["no-such-law"]}, ""),
    ],
)
def test_what_cannot_be_done_is_an_answer_too(folder: Path, facts: Any, said: str) -> None:
    line = done(**facts)
    assert line.lost.startswith(said)
    assert line.lost
    assert line.report.targets == []
